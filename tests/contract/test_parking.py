"""Records that cannot be read or folded: a verdict, a parked session, or a partition that stands still; and a log
that is not the one that was known."""

import asyncio
import json
from collections.abc import Callable
from typing import Any

import msgspec
import pytest

from gateway.cli.parked import Parked, parked_sessions
from producer.log import LogRecord
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from projector import fold as fold_module
from projector import refold as refold_module
from projector.refold import retry_session
from projector.settings import ProjectorSettings
from projector.site import Site, make_site
from projector.worker import Worker
from surfacelog.accept import accept
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict
from tests.logwriter import LogWriter
from tests.poison import POISON, Killed, kill_at
from tests.projection_reader import assert_equals_truth, partition_keys, view_of


@pytest.fixture
def topic() -> MemoryTopic:
    return MemoryTopic(partitions=1)


@pytest.fixture
def log(topic: MemoryTopic) -> MemoryLog:
    return MemoryLog(topic)


@pytest.fixture
def cache() -> MemoryCache:
    return MemoryCache()


def worker_of(log: MemoryLog, cache: MemoryCache) -> Worker:
    return Worker(log, cache, ProjectorSettings(idle_ms=10, fetch_wait_ms=5))


def site_of(log: MemoryLog, cache: MemoryCache) -> Site:
    return make_site(log, cache, 0, ProjectorSettings())


@pytest.fixture
def buggy(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """A fold that fails on any record whose bytes hold `POISON`; calling the fixture mends it."""

    def fails(state: SessionState, record: Record | None, offset: int) -> Verdict:
        verdict = accept(state, record, offset)
        if record is not None and POISON in record.value:
            # After the state was changed: the worst place.
            raise ZeroDivisionError("a bug")
        return verdict

    with monkeypatch.context() as patch:
        patch.setattr(fold_module, "accept", fails)
        patch.setattr(refold_module, "accept", fails)
        yield patch.undo


async def test_an_unreadable_record_is_counted_copied_and_passed_over(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, "one")
    for headers in ([], [("kind", b"\xff"), ("id", b"x"), ("v", b"1")], [("kind", b"commit"), ("v", b"one")]):
        offset = await log.produce(0, key, headers, b"\x00not json", 1000)
        accept(writer.truths[key].state, None, offset)
    await log.produce(0, b"no session's key", [], b"value", 1000)
    await log.produce(0, b"%zz/..", [], b"value", 1000)
    await writer.say(key, "two")
    worker = worker_of(log, cache)
    await worker.once()
    await assert_equals_truth(cache, writer, key)
    malformed = {"outcome": "rejected", "code": "malformed"}
    assert worker.metrics.registry.get_sample_value("surfacelog_projector_verdicts_total", malformed) == 5
    letters = [json.loads(letter) for letter in await cache.call("LRANGE", partition_keys(log, key).dead, 0, -1)]
    assert [letter["offset"] for letter in letters] == [2, 3, 4, 5, 6]


async def test_a_record_of_a_later_version_parks_its_session_only(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    strange, other = await writer.open("strange"), await writer.open("other")
    await writer.say(strange, "good")
    await writer.say(other, "good")
    later = Record("commit", "id", b"{}", v=99)
    at = await writer.produce(strange, later)
    await writer.say(other, "goes on")
    behind = await writer.produce(strange, later)
    worker = worker_of(log, cache)
    await worker.once()
    await assert_equals_truth(cache, writer, other)
    view = await view_of(cache, log, strange)
    assert view.entry is not None
    assert (view.entry.status, view.entry.code, view.entry.at) == ("faulted", "faulted", at)
    assert view.state is not None
    assert view.state.next_seq == 1
    parked = await cache.call("LRANGE", partition_keys(log, strange).session(strange).parked, 0, -1)
    assert [int(offset) for offset in parked] == [at, behind]


async def test_a_bug_in_the_fold_parks_the_session_and_a_retry_folds_it_anew(
    log: MemoryLog, cache: MemoryCache, buggy: Callable[[], None]
) -> None:
    writer = LogWriter(log)
    bad, good = await writer.open("bad"), await writer.open("good")
    worker = worker_of(log, cache)
    for number in range(6):
        await writer.say(bad, f"fine {number}")
        await writer.say(good, f"fine {number}")
    await writer.say(bad, POISON.decode())
    await writer.say(bad, "behind it")
    await writer.say(good, "beside it")
    await worker.once()
    await writer.say(bad, "later")
    await writer.say(good, "later")
    await worker.once()
    await assert_equals_truth(cache, writer, good)
    view = await view_of(cache, log, bad)
    assert view.state is not None
    assert view.state.next_seq == 6
    site = site_of(log, cache)
    assert (await retry_session(site, bad)).status == "faulted"
    buggy()
    assert (await retry_session(site, bad)).status == "open"
    await assert_equals_truth(cache, writer, bad)
    await writer.say(bad, "alive again")
    await worker.once()
    await assert_equals_truth(cache, writer, bad)


async def test_a_retry_in_the_middle_of_a_batch_loses_no_record(
    log: MemoryLog, cache: MemoryCache, buggy: Callable[[], None]
) -> None:
    writer = LogWriter(log)
    bad = await writer.open("bad")
    await writer.say(bad, POISON.decode())
    worker = worker_of(log, cache)
    await worker.once()
    await writer.say(bad, "after the fault")
    buggy()
    retried = False

    async def retry_before_commit(name: str) -> None:
        nonlocal retried
        if name == "commit" and not retried and asyncio.current_task() is projecting:
            retried = True
            await retry_session(site_of(log, cache), bad)

    cache.before = retry_before_commit
    projection = worker.projections[0]
    records = await log.read(0, projection.place.next, 10, 1000)
    projecting = asyncio.create_task(projection.project(records))
    await projecting
    cache.before = None
    assert retried
    await assert_equals_truth(cache, writer, bad)


async def test_a_record_that_kills_the_worker_is_named_and_its_session_parked(
    log: MemoryLog, cache: MemoryCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    kill_at(monkeypatch)
    writer = LogWriter(log)
    bad, good = await writer.open("bad"), await writer.open("good")
    for number in range(20):
        await writer.say(good, f"before {number}")
    at = await writer.say(bad, POISON.decode())
    await writer.say(good, "after")
    lives = 0
    while lives < 10:
        lives += 1
        try:
            await worker_of(log, cache).once()
            break
        except Killed:
            continue
    assert lives == 5, "two lives without progress, two that name what kills them, one that parks it"
    await assert_equals_truth(cache, writer, good)
    view = await view_of(cache, log, bad)
    assert view.entry is not None
    assert (view.entry.status, view.entry.at) == ("faulted", at)


async def test_only_a_record_without_a_key_halts_its_partition(
    topic: MemoryTopic, log: MemoryLog, cache: MemoryCache
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    topic.append(0, None, [], b"x", 0)  # type: ignore[arg-type]
    await writer.say(key, "never folded")
    worker = worker_of(log, cache)
    await worker.once()
    assert worker.halted == {0}
    view = await view_of(cache, log, key)
    assert view.checkpoint is not None
    assert (view.checkpoint.next, view.checkpoint.halted) == (1, "malformed")


@pytest.mark.parametrize("damage", ["recreated", "cut at the end", "cut at the start", "another record"])
async def test_a_log_that_is_not_the_one_that_was_known_is_reported_and_never_skipped(
    topic: MemoryTopic, log: MemoryLog, cache: MemoryCache, damage: str
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for number in range(9):
        await writer.say(key, str(number))
    await worker_of(log, cache).once()
    record = writer.record(key, [b"x"])
    if damage == "recreated":
        topic.recreate()
        for _ in range(12):
            await writer.produce(key, record)
    elif damage == "cut at the end":
        topic.truncate_from(0, 6)
    elif damage == "cut at the start":
        await writer.say(key, "not folded")
        await writer.say(key, "not folded either")
        topic.truncate_before(0, 11)
    else:
        topic.truncate_from(0, 9)
        await writer.produce(key, record)
    worker = worker_of(log, cache)
    await worker.once()
    assert worker.halted == {0}
    view = await view_of(cache, log, key)
    assert view.checkpoint is not None
    assert view.checkpoint.halted == "log-truncated"
    assert view.state is not None
    assert view.state.next_seq == 9


async def test_a_log_that_is_cut_under_a_running_worker_is_noticed(
    topic: MemoryTopic, log: MemoryLog, cache: MemoryCache
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for number in range(9):
        await writer.say(key, str(number))
    worker = worker_of(log, cache)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.projections and worker.projections[0].place.next == 10)
    topic.truncate_from(0, 6)
    await until(lambda: worker.halted)
    worker.stop()
    await running
    view = await view_of(cache, log, key)
    assert view.checkpoint is not None
    assert view.checkpoint.halted == "log-truncated"


async def test_an_emptied_cache_heals_without_any_new_record(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, "one")
    worker = worker_of(log, cache)
    running = asyncio.create_task(worker.run())
    await until(lambda: cache.data.call("EXISTS", partition_keys(log, key).session(key).meta))
    cache.flush()
    await until(lambda: cache.data.call("EXISTS", partition_keys(log, key).session(key).meta))
    worker.stop()
    await running
    await assert_equals_truth(cache, writer, key)


async def test_a_failover_that_lost_the_newest_seconds_is_rebuilt_up_to_the_log_end(
    log: MemoryLog, cache: MemoryCache
) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    worker = worker_of(log, cache)
    for _ in range(20):
        await writer.step(key)
    await worker.once()
    older = cache.snapshot()
    for _ in range(20):
        await writer.step(key)
    await worker.once()
    cache.restore(older)
    projection = worker.projections[0]
    await projection.open()
    view = await view_of(cache, log, key)
    assert view.checkpoint is not None
    assert view.checkpoint.rebuilding
    await projection.advance(100)
    await assert_equals_truth(cache, writer, key)


async def until(holds: Callable[[], Any]) -> None:
    async with asyncio.timeout(5):
        while not holds():
            await asyncio.sleep(0.005)


def test_a_dead_letter_is_bounded() -> None:
    fold = fold_module.Fold()
    record = LogRecord(0, 1, b"t/s", [("h", b"x" * 10_000)] * 50, b"y" * 1_000_000)
    fold.take(record, None)
    assert len(fold.dead[0]) < 20_000
    assert msgspec.json.decode(fold.dead[0])["offset"] == 1


async def test_parked_sessions_are_listed_with_what_waits_for_them(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("strange")
    await writer.open("other")
    at = await writer.produce(key, Record("commit", "id", b"{}", v=99))
    await writer.say(key, "waits")
    await worker_of(log, cache).once()
    assert await parked_sessions(log, cache) == [Parked("t", "strange", 0, "faulted", at, 2)]


async def test_a_session_that_somebody_else_parked_is_not_written_over(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, "one")
    worker = worker_of(log, cache)
    await worker.once()
    projection = worker.projections[0]
    keys = partition_keys(log, key)
    entry = (await view_of(cache, log, key)).entry
    assert entry is not None
    at = await writer.say(key, "two")
    parked = msgspec.structs.replace(entry, status="faulted", code="faulted", at=at)
    await cache.call("HSET", keys.directory, key, parked.encode())
    await projection.project(await log.read(0, at, 10, 1000))
    view = await view_of(cache, log, key)
    assert view.entry == parked
    assert view.state is not None
    assert view.state.next_seq == 1
    assert [int(offset) for offset in await cache.call("LRANGE", keys.session(key).parked, 0, -1)] == [at]


async def test_the_sessions_that_are_parked_now_are_counted(
    log: MemoryLog, cache: MemoryCache, buggy: Callable[[], None]
) -> None:
    writer = LogWriter(log)
    bad = await writer.open("bad")
    await writer.say(bad, POISON.decode())
    worker = worker_of(log, cache)

    def parked() -> float | None:
        name = "surfacelog_projector_parked_sessions"
        return worker.metrics.registry.get_sample_value(name, {"partition": "0"})

    running = asyncio.create_task(worker.run())
    await until(lambda: parked() == 1)
    buggy()
    assert (await retry_session(site_of(log, cache), bad)).status == "open"
    await until(lambda: parked() == 0)
    worker.stop()
    await running


async def test_the_time_of_each_stage_is_measured(log: MemoryLog, cache: MemoryCache) -> None:
    writer = LogWriter(log)
    await writer.open("s")
    worker = worker_of(log, cache)
    running = asyncio.create_task(worker.run())
    await until(lambda: worker.projections and worker.projections[0].place.next == 1)
    worker.stop()
    await running
    for stage in ("fetch", "load", "fold", "write"):
        name = "surfacelog_projector_stage_seconds_count"
        assert worker.metrics.registry.get_sample_value(name, {"stage": stage}) == 1, stage
