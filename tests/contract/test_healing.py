"""Sessions folded anew from the log: what kills the process kills it no more, and no record is left out."""

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from gateway.view import _judge
from producer.damage import report_damage
from producer.log import LogRecord, Unavailable
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from producer.sight import Sight
from projector import fold as fold_module
from projector import refold as refold_module
from projector.refold import retry_session
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from surfacelog.accept import accept
from surfacelog.errors import ProtocolError
from tests.logwriter import LogWriter
from tests.poison import POISON, Killed, kill_at
from tests.projection_reader import assert_equals_truth, partition_keys, view_of


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(MemoryTopic(partitions=1))


@pytest.fixture
def cache() -> MemoryCache:
    return MemoryCache()


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Iterator[pytest.MonkeyPatch]:
    """Folding a record whose bytes hold `POISON` ends the process; undoing the patch mends it."""

    with monkeypatch.context() as patch:
        kill_at(patch)
        yield patch


def worker_of(log: MemoryLog, cache: MemoryCache) -> Worker:
    return Worker(log, cache, ProjectorSettings(idle_ms=10, fetch_wait_ms=5))


async def live(log: MemoryLog, cache: MemoryCache) -> bool:
    """One life of a process; whether it outlives its work."""
    try:
        await worker_of(log, cache).once()
    except Killed:
        return False
    return True


async def lives(log: MemoryLog, cache: MemoryCache) -> int:
    """How many processes it takes until one lives."""
    for count in range(1, 10):
        if await live(log, cache):
            return count
    raise AssertionError("every process dies")


async def lose(cache: MemoryCache, log: MemoryLog, key: bytes) -> None:
    keys = partition_keys(log, key)
    await cache.call("DEL", keys.session(key).surface)
    await report_damage(cache, keys, key)


async def test_a_parked_killer_kills_nobody_when_its_damaged_session_is_read(
    log: MemoryLog, cache: MemoryCache, killing: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, "fine")
    at = await writer.say(key, POISON.decode())
    assert await lives(log, cache) > 1
    await lose(cache, log, key)
    assert await live(log, cache)
    view = await view_of(cache, log, key)
    assert view.whole
    assert view.state is not None
    assert view.state.next_seq == 1
    assert view.entry is not None
    assert (view.entry.status, view.entry.at) == ("faulted", at)
    killing.undo()
    assert (await retry_session(make_site(log, cache, 0, ProjectorSettings()), key)).status == "open"
    await assert_equals_truth(cache, writer, key)


async def test_a_session_that_is_parked_since_its_open_is_faulted_and_not_damaged(
    log: MemoryLog, cache: MemoryCache, killing: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(log)
    key = await writer.open(POISON.decode())
    assert await lives(log, cache) > 1
    assert (await Sight(cache, log.topic, 1).read(key)).code == "faulted"
    keys = partition_keys(log, key)
    entry = await cache.call("HGET", keys.directory, key)
    with pytest.raises(ProtocolError, match="parked") as refused:
        _judge(key, 0, 1, [1, (b"1", b"0", b""), entry, None])
    assert refused.value.code == "faulted"
    assert await cache.call("HGETALL", keys.damaged) == {}
    await report_damage(cache, keys, key)
    assert await live(log, cache)


async def test_a_record_that_kills_only_when_its_session_is_folded_anew_parks_it(
    log: MemoryLog, cache: MemoryCache, killing: pytest.MonkeyPatch
) -> None:
    killing.setattr(fold_module, "accept", accept)
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, "fine")
    at = await writer.say(key, POISON.decode())
    await writer.say(key, "behind it")
    assert await live(log, cache)
    await lose(cache, log, key)
    assert await lives(log, cache) == 5, "two that die, two that name what kills them, one that parks it"
    view = await view_of(cache, log, key)
    assert view.entry is not None
    assert (view.whole, view.entry.status, view.entry.at) == (True, "faulted", at)
    parked = await cache.call("LRANGE", partition_keys(log, key).session(key).parked, 0, -1)
    assert [int(offset) for offset in parked] == [at, at + 1]


async def test_heals_that_failed_without_a_crash_park_nothing(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for number in range(3):
        await writer.say(key, str(number))
    worker = worker_of(log, cache)
    await worker.once()
    await lose(cache, log, key)
    read = log.read

    async def silent(*_: Any) -> list[LogRecord]:
        raise Unavailable("no answer")

    log.read = silent  # type: ignore[method-assign]
    for _ in range(6):
        with pytest.raises(Unavailable):
            await worker.projections[0].mend()
    log.read = read  # type: ignore[method-assign]
    await worker.projections[0].mend()
    await assert_equals_truth(cache, writer, key)
    assert await cache.call("HGETALL", partition_keys(log, key).healing) == {}


async def test_a_record_that_is_parked_while_a_retry_begins_is_not_lost(
    log: MemoryLog, cache: MemoryCache, killing: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, POISON.decode())
    await lives(log, cache)
    killing.undo()
    worker = worker_of(log, cache)
    asked: list[str] = []

    async def park_one_more(name: str) -> None:
        # Between the first and the second thing that the retry asks the cache.
        if asyncio.current_task() is retrying:
            asked.append(name)
            if len(asked) == 2:
                await writer.say(key, "three")
                await worker.once()

    cache.before = park_one_more
    retrying = asyncio.create_task(retry_session(make_site(log, cache, 0, ProjectorSettings()), key))
    assert (await retrying).status == "open"
    cache.before = None
    await writer.say(key, "four")
    await worker.once()
    await assert_equals_truth(cache, writer, key)


def ends_early(log: MemoryLog, end: int) -> None:
    """As a leader that was just elected: whoever reads is told an early end, and the true one is not told."""
    read = log.read

    async def early(partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        found = await read(partition, offset, records_max, timeout_ms)
        return [record for record in found if record.offset < end]

    async def refused(*_: Any) -> dict[int, int]:
        raise Unavailable("the leader does not know its end")

    log.read = early  # type: ignore[method-assign]
    log.ends = refused  # type: ignore[method-assign]


def recovers(log: MemoryLog) -> None:
    del log.read, log.ends


async def test_a_heal_never_takes_an_early_end_for_the_end(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for number in range(5):
        await writer.say(key, str(number))
    worker = worker_of(log, cache)
    await worker.once()
    await lose(cache, log, key)
    ends_early(log, 3)
    with pytest.raises(Unavailable):
        await worker.projections[0].mend()
    recovers(log)
    await worker.projections[0].mend()
    await assert_equals_truth(cache, writer, key)


@pytest.mark.parametrize("knows_end", [False, True])
async def test_a_rebuild_never_skips_what_an_early_end_hides(
    log: MemoryLog, cache: MemoryCache, knows_end: bool
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for number in range(5):
        await writer.say(key, str(number))
    worker = worker_of(log, cache)
    projection = worker._projection(0)  # noqa: SLF001 - a rebuild in its middle
    await projection.open()
    await projection.advance(3)
    ends = log.ends
    ends_early(log, 3)
    if knows_end:
        # It begins to answer, but the log is not read that far yet.
        told = [3]

        async def knows(*_: Any) -> dict[int, int]:
            return {0: told.pop(0) if told else (await ends([0], 1000))[0]}

        log.ends = knows  # type: ignore[method-assign]
        await projection.tick()
    else:
        with pytest.raises(Unavailable):
            await projection.tick()
    assert projection.place.next == 3
    recovers(log)
    await worker.once()
    await assert_equals_truth(cache, writer, key)


async def test_a_rebuild_ends_where_the_last_offsets_hold_no_record(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    worker = worker_of(log, cache)
    projection = worker._projection(0)  # noqa: SLF001 - a rebuild in its middle
    at = await writer.say(key, "one")
    ends = log.ends

    async def later(*asked: Any) -> dict[int, int]:
        return {0: (await ends(*asked))[0] + 2}

    log.ends = later  # type: ignore[method-assign]
    await projection.open()
    await projection.advance(at + 3)
    assert projection.place.rebuilding
    await projection.tick()
    assert not projection.place.rebuilding
    await assert_equals_truth(cache, writer, key)


async def test_a_session_parked_as_it_is_is_folded_anew_when_it_is_damaged_again(
    log: MemoryLog, cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    writer = LogWriter(log)
    key, other = await writer.open("s"), await writer.open("other")
    await writer.say(key, "fine")
    assert await live(log, cache)

    def fails(*args: Any) -> None:
        raise ValueError("it cannot be written")

    with monkeypatch.context() as patch:
        patch.setattr(refold_module, "write_session", fails)
        await lose(cache, log, key)
        assert await live(log, cache)
    await lose(cache, log, key)
    await writer.say(other, "more")
    assert await live(log, cache)
    await assert_equals_truth(cache, writer, other)
    view = await view_of(cache, log, key)
    assert view.entry is not None
    assert (view.whole, view.entry.status) == (True, "faulted")
    assert (await retry_session(make_site(log, cache, 0, ProjectorSettings()), key)).status == "open"
    await assert_equals_truth(cache, writer, key)
