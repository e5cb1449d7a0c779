"""Settings of the projector: bounds of its batches and of its memory."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

__all__ = ["ProjectorSettings"]

Count = Annotated[int, Meta(ge=1, le=1_000_000)]


class ProjectorSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`group`: of the workers that share the partitions; empty for `<topic>-projector`. `member`: this worker's
    name in it, which it keeps over restarts; empty for a new one. `batch_records`: of one fetch. `call_values`,
    `call_bytes`: what one script call carries before it is cut. `states_count`, `states_bytes`: of the session
    states kept in one worker's memory. `tail_events`, `tail_bytes`: of the newest events kept beside a session's
    messages, at most a `tail_share`-th of these (0: of any size). `idle_ms`: how often a quiet partition is looked
    at. `metrics_port` (0: none) asks for no credential, so it is bound to loopback unless `metrics_host` says
    otherwise. `log_format`: json writes one object a line."""

    group: str = ""
    member: str = ""
    batch_records: Count = 5000
    fetch_wait_ms: Annotated[int, Meta(ge=1, le=60_000)] = 250
    call_values: Count = 8000
    call_bytes: Annotated[int, Meta(ge=1024)] = 1 << 20
    states_count: Count = 20_000
    states_bytes: Annotated[int, Meta(ge=1 << 20)] = 256 << 20
    tail_events: Annotated[int, Meta(ge=0, le=10_000)] = 16
    tail_bytes: Annotated[int, Meta(ge=0)] = 2048
    tail_share: Annotated[int, Meta(ge=0)] = 20
    idle_ms: Annotated[int, Meta(ge=10, le=60_000)] = 1000
    log_timeout_ms: Annotated[int, Meta(ge=100)] = 10_000
    backoff_ms_max: Annotated[int, Meta(ge=1)] = 5000
    metrics_port: Annotated[int, Meta(ge=0, le=65_535)] = 0
    metrics_host: Annotated[str, Meta(min_length=1)] = "127.0.0.1"
    log_format: Literal["text", "json"] = "text"
