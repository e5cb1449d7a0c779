"""The world of one run: a log, a cache, a network, and the evidence of its clients."""

import msgspec

from producer.limits import AppendLimits
from producer.log import LogRecord
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryTopic
from projector.careful import SUSPECT
from projector.settings import ProjectorSettings
from sim.asks import AskMaker
from sim.evidence import Evidence
from sim.loop import SimLoop
from sim.temper import Temper
from sim.wires import QuickWireLog, Sky, WireCache, WireLog
from surfacelog.keys import PROJECTION_VERSION, PartitionKeys, partition_of, tag_of

__all__ = ["GROUP", "World"]

GROUP = "projectors"


# Shorter than in life, so that a short run sees locks expire, verdicts late, and deadlines passed.
_LIMITS = AppendLimits(
    append_timeout_ms=2_000,
    append_in_flight_max=8,
    lock_ttl_ms=400,
    lock_yield_ms=60,
    lock_linger_ms=10,
    verdict_poll_ms=30,
    verdict_poll_max_ms=200,
)
_SETTINGS = ProjectorSettings(
    group=GROUP, fetch_wait_ms=400, idle_ms=300, batch_records=50, tail_events=4, tail_bytes=600, tail_share=0
)
_SMALL_CALLS = {"batch_records": 4, "call_values": 30, "states_count": 1, "tail_events": 3, "tail_bytes": 300}


class World:
    """Everything that outlives a process."""

    def __init__(self, loop: SimLoop, temper: Temper) -> None:
        self.loop = loop
        self.temper = temper
        self.chance = loop.random
        self.sky = Sky(loop)
        self.topic = MemoryTopic(temper.partitions)
        self.cache = MemoryCache()
        self.evidence = Evidence()
        self.asks = AskMaker(self.chance)
        # Sessions that lost a key in the cache, and the log end then: a record behind it must heal them.
        self.lost: dict[bytes, int] = {}
        self.damaged = False
        # Partitions in which a worker may have died over a named record: its session is parked then, by design.
        self.feared: set[int] = set()
        self.refolds = 0
        self.sessions = [b"t/s%d" % number for number in range(temper.sessions)]
        self.limits = msgspec.structs.replace(_LIMITS, append_in_flight_max=2 if temper.small_windows else 8)
        self.settings = msgspec.structs.replace(_SETTINGS, **(_SMALL_CALLS if temper.small_calls else {}))
        self._keys = [
            PartitionKeys(tag_of(number, temper.partitions, self.topic.topic), PROJECTION_VERSION)
            for number in range(temper.partitions)
        ]
        self._ids = 0

    def mint_id(self) -> str:
        """A record id; grows like a UUIDv7."""
        self._ids += 1
        return f"id-{self._ids:05d}"

    def now_ms(self) -> int:
        """The true time."""
        return int(self.loop.time() * 1000)

    def partition(self, key: bytes) -> int:
        """The partition of a session."""
        return partition_of(key, self.topic.partitions)

    def keys(self, partition: int) -> PartitionKeys:
        """The cache keys of a partition."""
        return self._keys[partition]

    def notice_names(self) -> None:
        """A worker is gone, or the cache is an older one: a record that is suspect by now may be blamed for it."""
        for partition, keys in enumerate(self._keys):
            # Its name may still be under way, but who names a suspect knew it for one.
            if self.cache.data.call("HGET", keys.checkpoint, SUSPECT) is not None:
                self.feared.add(partition)

    def end(self, key: bytes) -> int:
        """The true log end of a session's partition."""
        return self.topic.end(self.partition(key))

    def wire_log(self) -> WireLog:
        """A new connection to the log."""
        kind = QuickWireLog if self.chance.random() < 0.5 else WireLog
        return kind(self.sky, self.topic)

    def wire_cache(self) -> WireCache:
        """A new connection to the cache."""
        return WireCache(self.sky, self.cache)

    def records(self) -> dict[int, list[LogRecord]]:
        """The whole log."""
        return {
            partition: self.topic.slice(partition, 0, 1 << 20, 1 << 30)
            for partition in range(self.topic.partitions)
        }
