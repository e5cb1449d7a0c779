"""Where a projection works: one partition, its log, its cache, and the little it needs of the outside world."""

import time
from collections.abc import Callable
from uuid import uuid4

import msgspec

from producer.cache import Cache
from producer.log import EventLog
from projector.session_write import TailBounds
from projector.settings import ProjectorSettings
from surfacelog.keys import PROJECTION_VERSION, PartitionKeys, tag_of

__all__ = ["Site", "make_site"]


class Site(msgspec.Struct, frozen=True):
    """`now_ms`: wall clock. `nonce`: fresh names for epochs and message lists."""

    log: EventLog
    cache: Cache
    partition: int
    keys: PartitionKeys
    settings: ProjectorSettings
    bounds: TailBounds
    now_ms: Callable[[], int]
    nonce: Callable[[], str]

    @property
    def timeout_ms(self) -> int:
        """How long the log may take to answer."""
        return self.settings.log_timeout_ms


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _nonce() -> str:
    return uuid4().hex[:12]


def make_site(
    log: EventLog,
    cache: Cache,
    partition: int,
    settings: ProjectorSettings,
    *,
    now_ms: Callable[[], int] = _now_ms,
    nonce: Callable[[], str] = _nonce,
) -> Site:
    """The site of one partition at this release's projection version."""
    keys = PartitionKeys(tag_of(partition, log.partitions, log.topic), PROJECTION_VERSION)
    bounds = TailBounds(settings.tail_events, settings.tail_bytes, settings.tail_share)
    return Site(log, cache, partition, keys, settings, bounds, now_ms, nonce)
