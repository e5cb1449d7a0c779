"""The list of what waits of a parked session: each of its records once, whoever writes it and however often."""

import pytest

from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from projector.settings import ProjectorSettings
from projector.trouble import Moved
from projector.worker import Worker
from surfacelog.records import Record
from tests.logwriter import LogWriter
from tests.projection_reader import partition_keys

LATER = Record("open", "id", b"{}", v=99)


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(MemoryTopic(partitions=1))


@pytest.fixture
def cache() -> MemoryCache:
    return MemoryCache()


async def worker_of(log: MemoryLog, cache: MemoryCache) -> Worker:
    """A worker that has folded all there is."""
    worker = Worker(log, cache, ProjectorSettings(idle_ms=10, fetch_wait_ms=5))
    await worker.once()
    return worker


async def waiting(log: MemoryLog, cache: MemoryCache, key: bytes) -> list[int]:
    return [
        int(offset) for offset in await cache.call("LRANGE", partition_keys(log, key).session(key).parked, 0, -1)
    ]


@pytest.mark.parametrize("at_its_open", [True, False])
async def test_a_partition_that_begins_anew_lists_nothing_twice(
    log: MemoryLog, cache: MemoryCache, at_its_open: bool
) -> None:
    writer = LogWriter(log)
    key = b"t/strange" if at_its_open else await writer.open("strange")
    offsets = [await writer.produce(key, LATER) for _ in range(3)]
    for _ in range(3):
        await worker_of(log, cache)
        assert await waiting(log, cache, key) == offsets
        await cache.call("DEL", partition_keys(log, key).checkpoint)


async def test_a_worker_that_is_overtaken_lists_nothing_twice(log: MemoryLog, cache: MemoryCache) -> None:
    # The list has no check of its own: it grows only in calls that move the checkpoint on, and the checkpoint is
    # checked in the same call.
    writer = LogWriter(log)
    key = await writer.open("strange")
    at = await writer.produce(key, LATER)
    slow, quick = await worker_of(log, cache), await worker_of(log, cache)
    behind = await writer.say(key, "waits")
    records = await log.read(0, behind, 10, 1000)

    async def overtake(name: str) -> None:
        if name == "commit":
            cache.before = None
            await quick.projections[0].project(records)

    cache.before = overtake
    with pytest.raises(Moved):
        await slow.projections[0].project(records)
    assert await waiting(log, cache, key) == [at, behind]
