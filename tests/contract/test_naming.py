"""Records that are named before they are folded, by workers that fear a crash: a killer is found by its name, and
a record that was only named when its worker ended is not taken for one."""

from collections.abc import Iterator

import pytest

from producer.damage import report_damage
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from projector.settings import ProjectorSettings
from projector.worker import Worker
from surfacelog.records import Record
from tests.logwriter import LogWriter
from tests.poison import Killed, kill_at
from tests.projection_reader import assert_equals_truth, partition_keys, view_of

RECORDS = 5


@pytest.fixture
def log() -> MemoryLog:
    return MemoryLog(MemoryTopic(partitions=1))


@pytest.fixture
def cache() -> MemoryCache:
    return MemoryCache()


@pytest.fixture
def kills(monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[int, int]]:
    """How many more processes end while they fold the record at an offset."""
    left: dict[int, int] = {}

    def ends(record: Record | None, offset: int) -> bool:
        if left.get(offset, 0) <= 0:
            return False
        left[offset] -= 1
        return True

    with monkeypatch.context() as patch:
        kill_at(patch, ends)
        yield left


def worker_of(log: MemoryLog, cache: MemoryCache) -> Worker:
    return Worker(log, cache, ProjectorSettings(idle_ms=10, fetch_wait_ms=5))


async def deaths(log: MemoryLog, cache: MemoryCache) -> int:
    """How many processes end before one lives."""
    for count in range(10):
        try:
            await worker_of(log, cache).once()
        except Killed:
            continue
        return count
    raise AssertionError("every process dies")


async def tell(log: MemoryLog, cache: MemoryCache) -> tuple[LogWriter, bytes]:
    """A session of harmless records, in a partition whose next worker fears a crash."""
    writer = LogWriter(log)
    key = await writer.open("s")
    await worker_of(log, cache).once()
    for number in range(RECORDS):
        await writer.say(key, str(number))
    await cache.call("HSET", partition_keys(log, key).checkpoint, b"opens", 5)
    return writer, key


@pytest.mark.parametrize("offset", range(1, RECORDS + 1))
async def test_a_worker_that_ends_while_it_names_a_harmless_record_parks_nothing(
    log: MemoryLog, cache: MemoryCache, kills: dict[int, int], offset: int
) -> None:
    writer, key = await tell(log, cache)
    kills[offset] = 1
    assert await deaths(log, cache) == 1
    await assert_equals_truth(cache, writer, key)


async def test_workers_that_end_at_one_harmless_record_after_the_other_park_nothing(
    log: MemoryLog, cache: MemoryCache, kills: dict[int, int]
) -> None:
    writer, key = await tell(log, cache)
    kills.update(dict.fromkeys(range(1, RECORDS + 1), 1))
    assert await deaths(log, cache) == RECORDS
    await assert_equals_truth(cache, writer, key)


async def test_a_killer_behind_records_that_went_well_is_parked_after_one_more_death(
    log: MemoryLog, cache: MemoryCache, kills: dict[int, int]
) -> None:
    _, key = await tell(log, cache)
    kills[3] = 100
    assert await deaths(log, cache) == 2, "one leaves the name of a suspect, one leaves it again"
    view = await view_of(cache, log, key)
    assert view.entry is not None
    assert (view.entry.status, view.entry.at) == ("faulted", 3)
    assert view.state is not None
    assert view.state.next_seq == 2


@pytest.mark.parametrize("offset", range(RECORDS + 1))
async def test_a_heal_that_is_ended_at_a_harmless_record_parks_nothing(
    log: MemoryLog, cache: MemoryCache, kills: dict[int, int], offset: int
) -> None:
    writer, key = await tell(log, cache)
    await worker_of(log, cache).once()
    keys = partition_keys(log, key)
    await cache.call("DEL", keys.session(key).surface)
    await report_damage(cache, keys, key)
    await cache.call("HSET", keys.healing, key, b"[5,-1]")
    kills[offset] = 1
    assert await deaths(log, cache) == 1
    await assert_equals_truth(cache, writer, key)
    assert await cache.call("HGETALL", keys.healing) == {}
