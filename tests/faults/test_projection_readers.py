"""Readers of a session that is compacted all the time: no answer is ever half of one state and half of another."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from deploy.valkey import ValkeyServer
from gateway.scripts import MESSAGES
from producer.cache import Cache
from producer.memory_log import MemoryLog, MemoryTopic
from producer.redis_cache import open_redis
from projector import rewrite, staging
from projector.settings import ProjectorSettings
from projector.worker import Worker
from tests.logwriter import LogWriter
from tests.projection_reader import assert_equals_truth, partition_keys

REPLACES = 1000


@pytest.fixture
async def cache(redis_server: ValkeyServer) -> AsyncIterator[Cache]:
    client = await open_redis(redis_server.url)
    yield client
    await client.close()


@pytest.mark.parametrize("staged", [False, True], ids=["in the commit", "staged"])
async def test_every_answer_during_a_thousand_replaces_is_the_fold_at_its_seq(
    cache: Cache, monkeypatch: pytest.MonkeyPatch, staged: bool
) -> None:
    if staged:
        monkeypatch.setattr(rewrite, "STAGE_BYTES_MAX", 0)
        monkeypatch.setattr(staging, "STAGE_BYTES_MAX", 600)
    log = MemoryLog(MemoryTopic(partitions=1))
    writer = LogWriter(log)
    key = await writer.open("s")
    worker = Worker(log, cache, ProjectorSettings(fetch_wait_ms=5))
    expected: dict[tuple[int, int], list[bytes]] = {}

    def remember() -> None:
        session = writer.truths[key].session
        expected[session.next_seq, session.surface.content_generation] = writer.truths[key].messages

    for number in range(12):
        await writer.say(key, f"first {number}")
    remember()
    await worker.once()
    running = asyncio.create_task(worker.run())
    reading = asyncio.create_task(read_until_cancelled(cache, log, key, expected))
    for number in range(REPLACES):
        await writer.say(key, f"said {number}")
        remember()
        await writer.replace(key, number % 5, number % 5 + 1, f"replaced {number}")
        remember()
        if number % 4 == 0:
            await asyncio.sleep(0.002)
    async with asyncio.timeout(60):
        while worker.projections[0].place.next < log.end(0):
            await asyncio.sleep(0.01)
    worker.stop()
    await running
    reading.cancel()
    answers, generations = await reading
    assert answers > 200
    assert generations > 50, "the reader saw too few states to prove anything"
    await assert_equals_truth(cache, writer, key)


async def read_until_cancelled(
    cache: Cache, log: MemoryLog, key: bytes, expected: dict[tuple[int, int], list[bytes]]
) -> tuple[int, int]:
    """Checks every answer; (answers, different states seen)."""
    keys = partition_keys(log, key)
    own = keys.session(key)
    names = (keys.serving, keys.checkpoint, keys.directory, own.meta, own.messages)
    answers, seen = 0, set()
    task = asyncio.current_task()
    assert task is not None
    try:
        # redis-py sends through asyncio.wait_for, whose end can swallow a cancellation on Python 3.11.
        while not task.cancelling():
            found = await cache.run(MESSAGES, names, (keys.version, key, b"", b"", 0, b"", b"", b""))
            state = int(found[3][2]), int(found[3][3])
            assert found[5] == expected[state], state
            answers += 1
            seen.add(state)
    except asyncio.CancelledError:
        pass
    return answers, len(seen)


async def test_a_crash_in_the_middle_of_staging_shows_nothing(cache: Cache) -> None:
    log = MemoryLog(MemoryTopic(partitions=1))
    writer = LogWriter(log)
    key = await writer.open("s")
    for number in range(300):
        await writer.say(key, f"{number} " + "x" * 10_000)
    await Worker(log, cache, ProjectorSettings()).once()
    before = writer.truths[key].messages
    await writer.replace(key, 100, 100, "short")
    calls = 0

    class DyingCache:
        """The worker's cache dies after the first staged piece."""

        def __getattr__(self, name: str) -> object:
            return getattr(cache, name)

        async def run(self, script, keys, args):  # type: ignore[no-untyped-def]
            nonlocal calls
            calls += script is staging.STAGE_SCRIPT
            if calls > 1:
                raise KeyboardInterrupt
            return await cache.run(script, keys, args)

    with pytest.raises(KeyboardInterrupt):
        await Worker(log, DyingCache(), ProjectorSettings()).once()  # type: ignore[arg-type]
    keys = partition_keys(log, key)
    own = keys.session(key)
    pointer = await cache.call("HGET", own.meta, b"mk")
    assert await cache.call("LRANGE", own.messages + pointer, 0, -1) == before
    await Worker(log, cache, ProjectorSettings()).once()
    await assert_equals_truth(cache, writer, key)
