"""Bounds and periods of the append path: everything that waits, waits for at most one of these."""

from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = ["AppendLimits"]

Milliseconds = Annotated[int, Meta(ge=1, le=3_600_000)]
Count = Annotated[int, Meta(ge=1)]


class AppendLimits(msgspec.Struct, frozen=True, kw_only=True):
    """`append_timeout_ms` is a request's deadline unless it brings its own. The lock's life is short, because
    losing it is harmless and a dead holder's successor waits for it to run out."""

    append_timeout_ms: Milliseconds = 10_000
    append_attempts_max: Count = 8
    append_in_flight_max: Annotated[int, Meta(ge=1, le=32)] = 32
    append_commits_max: Count = 8_192
    append_bytes_max: Count = 64 * 2**20
    append_writers_max: Count = 4_096
    append_nodes_max: Count = 1_000_000
    lock_ttl_ms: Milliseconds = 5_000
    lock_yield_ms: Milliseconds = 200
    # Between two appends of one run the lock stays: taking it anew costs more than all the rest. Whoever wants it
    # says so and has it at once.
    lock_linger_ms: Annotated[int, Meta(ge=0)] = 1_000
    lock_retry_ms: Milliseconds = 5
    verdict_poll_ms: Milliseconds = 50
    verdict_poll_max_ms: Milliseconds = 500
    retry_pause_ms: Milliseconds = 100
