"""What ends a worker, and what does not: a fault of one partition or session is no fault of the others."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from producer.log import LogRecord, Unavailable
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from projector import fold as fold_module
from projector import partition as partition_module
from projector.delta import Delta, changed_delta
from projector.partition import YIELD_RECORDS, PartitionProjection
from projector.settings import ProjectorSettings
from projector.trouble import Moved
from projector.worker import Worker
from surfacelog.accept import accept
from surfacelog.records import Record
from surfacelog.state import Changes, SessionState
from surfacelog.verdict import Verdict
from tests.logwriter import LogWriter
from tests.projection_reader import assert_equals_truth, partition_keys, view_of

POISON = b"poison"


def worker_of(log: MemoryLog, cache: MemoryCache) -> Worker:
    return Worker(log, cache, ProjectorSettings(idle_ms=10, fetch_wait_ms=5))


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


def figure(worker: Worker, name: str) -> float:
    return worker.metrics.registry.get_sample_value(f"surfacelog_projector_{name}") or 0


async def test_a_session_that_the_log_no_longer_gives_is_parked_and_its_neighbours_go_on() -> None:
    topic = MemoryTopic(partitions=1)
    log, cache = MemoryLog(topic), MemoryCache()
    writer = LogWriter(log)
    lost, other = await writer.open("lost"), await writer.open("other")
    for number in range(5):
        await writer.say(lost, str(number))
        await writer.say(other, str(number))
    await worker_of(log, cache).once()
    topic.truncate_before(0, 6)
    await cache.call("DEL", partition_keys(log, lost).session(lost).surface)
    await writer.say(lost, "x")
    await writer.say(other, "y")
    worker = worker_of(log, cache)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.projections and worker.projections[0].place.next == 14)
    worker.stop()
    await running
    await assert_equals_truth(cache, writer, other)
    view = await view_of(cache, log, lost)
    assert view.entry is not None
    assert (view.entry.status, view.entry.code) == ("faulted", "log-truncated")
    assert view.meta, "what is left of it in the cache may be all that is left of it"


@pytest.mark.parametrize("bad_at", [0, 3, 9])
async def test_what_cannot_be_written_parks_its_session_alone(
    monkeypatch: pytest.MonkeyPatch, bad_at: int
) -> None:
    def fails(state: SessionState, changes: Changes) -> Delta:
        if any(POISON in line for line in changes.lines):
            raise OverflowError("it cannot be encoded")
        return changed_delta(state, changes)

    monkeypatch.setattr(partition_module, "changed_delta", fails)
    log, cache = MemoryLog(MemoryTopic(partitions=1)), MemoryCache()
    writer = LogWriter(log)
    bad, good = await writer.open("bad"), await writer.open("good")
    at = -1
    for number in range(10):
        offset = await writer.say(bad, POISON.decode() if number == bad_at else "fine")
        at = offset if number == bad_at else at
        await writer.say(good, str(number))
    await worker_of(log, cache).once()
    await assert_equals_truth(cache, writer, good)
    view = await view_of(cache, log, bad)
    assert view.entry is not None
    assert (view.entry.status, view.entry.at) == ("faulted", at)
    assert view.state is not None
    assert view.state.next_seq == bad_at


async def test_a_verdict_that_cannot_be_told_parks_its_session_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    def untold(state: SessionState, record: Record | None, offset: int) -> Verdict:
        verdict = accept(state, record, offset)
        if record is not None and POISON in record.value:
            return msgspec.structs.replace(verdict, message="\ud800")
        return verdict

    monkeypatch.setattr(fold_module, "accept", untold)
    log, cache = MemoryLog(MemoryTopic(partitions=1)), MemoryCache()
    writer = LogWriter(log)
    writer.replies = "producer"
    bad, good = await writer.open("bad"), await writer.open("good")
    at = await writer.say(bad, POISON.decode())
    await writer.say(good, "fine")
    await worker_of(log, cache).once()
    await assert_equals_truth(cache, writer, good)
    view = await view_of(cache, log, bad)
    assert view.entry is not None
    assert (view.entry.status, view.entry.at) == ("faulted", at)


def test_a_dead_letter_of_words_that_are_no_text_is_kept_without_them() -> None:
    fold = fold_module.Fold()
    fold.take(LogRecord(0, 7, b"t/s", [("\ud800", b"x")], b"y"), None)
    letter = msgspec.json.decode(fold.dead[0])
    assert (letter["offset"], letter["headers"]) == (7, [])


async def test_a_fold_that_is_cancelled_in_its_middle_leaves_nothing_half_done() -> None:
    log, cache = MemoryLog(MemoryTopic(partitions=1)), MemoryCache()
    writer = LogWriter(log)
    key = await writer.open("s")
    worker = worker_of(log, cache)
    await worker.once()
    for number in range(6 * YIELD_RECORDS):
        await writer.say(key, str(number))
    projection = worker.projections[0]
    records = await log.read(0, projection.place.next, 1000, 1000)
    folding = asyncio.create_task(projection.project(records))
    while not worker.states.turn.locked():
        await asyncio.sleep(0)
    # By now the first ids are forgotten, so folding them again would be noticed.
    for _ in range(3):
        await asyncio.sleep(0)
    assert worker.states.turn.locked()
    folding.cancel()
    await asyncio.gather(folding, return_exceptions=True)
    assert folding.cancelled()
    await projection.project(records)
    assert projection.place.next == len(records) + 1
    await assert_equals_truth(cache, writer, key)


async def test_a_run_to_the_end_goes_on_past_any_number_of_sessions_to_park() -> None:
    log, cache = MemoryLog(MemoryTopic(partitions=1)), MemoryCache()
    writer = LogWriter(log)
    keys = [await writer.open(f"s{number}") for number in range(100)]
    for key in keys:
        await writer.produce(key, Record("commit", "id", b"{}", v=99))
    good = await writer.open("good")
    worker = worker_of(log, cache)
    await worker.once()
    assert worker.projections[0].place.next == 201
    await assert_equals_truth(cache, writer, good)


async def test_a_run_to_the_end_that_gets_nowhere_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    async def moves(self: PartitionProjection, until: int) -> int:
        raise Moved("another worker's checkpoint")

    monkeypatch.setattr(PartitionProjection, "advance", moves)
    log, cache = MemoryLog(MemoryTopic(partitions=1)), MemoryCache()
    with pytest.raises(Unavailable, match="another worker moves it"):
        await worker_of(log, cache).once()


async def test_an_error_that_nobody_foresaw_stops_one_partition_for_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    tries = 0
    original = PartitionProjection.project

    async def fails(self: PartitionProjection, records: Sequence[LogRecord]) -> None:
        nonlocal tries
        if self.partition == 0:
            tries += 1
            raise RuntimeError("a bug")
        await original(self, records)

    monkeypatch.setattr(PartitionProjection, "project", fails)
    log, cache = MemoryLog(MemoryTopic(partitions=2)), MemoryCache()
    writer = LogWriter(log)
    keys = {writer.partition(f"t/{name}".encode()): f"{name}" for name in range(20)}
    bad, good = await writer.open(keys[0]), await writer.open(keys[1])
    worker = worker_of(log, cache)
    running = asyncio.create_task(worker.run())
    await until(lambda: tries)
    await asyncio.sleep(0.7)
    # 20 + 40 + 80 + 160 + 320 ms; never reset by an open that succeeds.
    assert 2 <= tries <= 7
    await writer.say(good, "goes on")
    await until(lambda: worker.projections[1].place.next == 2)
    assert figure(worker, "failures_total") == tries
    monkeypatch.undo()
    await until(lambda: worker.projections[0].place.next == 1)
    worker.stop()
    await running
    await assert_equals_truth(cache, writer, bad)
    await assert_equals_truth(cache, writer, good)
