"""The list of what waits of a parked session: each of its records once, whoever writes it and however often."""

from collections.abc import Sequence
from typing import Any

import pytest

from producer.cache import Argument, Script
from producer.checkpoint import DirEntry
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


async def test_records_of_many_parked_sessions_are_listed_in_small_calls(
    log: MemoryLog, cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer, worker = LogWriter(log), await worker_of(log, cache)
    keys = [b"t/s%d" % number for number in range(1000)]
    # Parked long ago, which is told here and not done: each one's parking is a call of its own.
    entry = DirEntry(0, "faulted", -1, "malformed", 0).encode()
    own = partition_keys(log, keys[0])
    await cache.call("HSET", own.directory, *(part for key in keys for part in (key, entry)))
    await cache.call("HSET", own.checkpoint, b"sessions", len(keys))
    behind = [await writer.produce(key, LATER) for key in keys]
    named: list[int] = []
    run = cache.run

    async def watched(script: Script, names: Sequence[bytes], args: Sequence[Argument]) -> Any:
        if script.name == "commit":
            named.append(len(names))
        return await run(script, names, args)

    monkeypatch.setattr(cache, "run", watched)
    await worker.once()
    assert 500 < max(named) < 1000
    assert [await waiting(log, cache, key) for key in keys] == [[offset] for offset in behind]
