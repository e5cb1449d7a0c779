"""The projector over a log in memory, into both caches: what is projected equals the fold, whatever was lost."""

import json
from collections.abc import Sequence
from typing import Any

import pytest

from producer.cache import LISTENING, Argument, Cache, Script
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from producer.state_reader import STATE_SCRIPT
from projector.metrics import ProjectorMetrics
from projector.partition import PartitionProjection
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.states import States
from projector.trouble import Moved
from projector.worker import Worker
from surfacelog.records import KeyClaim, Record
from surfacelog.snapshot import pieces
from tests.logwriter import LogWriter, user
from tests.projection_reader import assert_equals_truth, partition_keys, view_of


@pytest.fixture
def log(unique: str) -> MemoryLog:
    return MemoryLog(MemoryTopic(partitions=3, topic=unique))


def make_worker(log: MemoryLog, cache: Cache, **settings: int) -> Worker:
    return Worker(log, cache, ProjectorSettings(**settings))


async def test_what_is_projected_equals_the_reference_after_every_batch(cache: Cache, log: MemoryLog) -> None:
    writer = LogWriter(log)
    worker = make_worker(log, cache, batch_records=7)
    keys = [await writer.open(f"s{index}") for index in range(4)]
    for _ in range(12):
        for key in keys * 4:
            await writer.step(key)
        await worker.once()
        for key in keys:
            await assert_equals_truth(cache, writer, key)


async def test_a_worker_that_holds_nothing_goes_on_as_one_that_holds_all(cache: Cache, log: MemoryLog) -> None:
    writer = LogWriter(log, seed=2)
    key = await writer.open("s")
    for _ in range(40):
        await writer.step(key)
        await make_worker(log, cache).once()
    await assert_equals_truth(cache, writer, key)


async def test_verdicts_and_news_are_published_with_the_commit(cache: Cache, log: MemoryLog) -> None:
    writer = LogWriter(log)
    writer.replies = "producer-1"
    key = await writer.open("s")
    keys = partition_keys(log, key)
    heard = cache.listen([keys.verdicts(b"producer-1"), keys.news])
    assert await anext(heard) == LISTENING
    offset = await writer.say(key, "hello")
    await make_worker(log, cache).once()
    channel, payload = await anext(heard)
    assert channel == keys.verdicts(b"producer-1")
    assert [verdict["outcome"] for verdict in json.loads(payload)] == ["accepted", "accepted"]
    assert json.loads(payload)[1]["offset"] == offset
    channel, payload = await anext(heard)
    assert (channel, json.loads(payload)) == (keys.news, [["t/s", 1, 0]])
    await heard.aclose()  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "piece", ["meta", "surface", "messages", "transcript", "tail", "offsets", "recent", "used_keys"]
)
async def test_a_lost_key_is_noticed_and_only_its_session_is_folded_anew(
    cache: Cache, log: MemoryLog, piece: str
) -> None:
    writer = LogWriter(log)
    names = [name for name in map(str, range(40)) if writer.partition(f"t/{name}".encode()) == 0][:3]
    keys = [await writer.open(name) for name in names]
    worker = make_worker(log, cache)
    for key in keys:
        for _ in range(10):
            await writer.step(key)
        # A tail is kept beside a session of some size only.
        for _ in range(40):
            await writer.say(key, "x" * 700)
        await writer.commit(key, user("keyed"), claim=KeyClaim("aa", "bb", 0))
    await worker.once()
    own = partition_keys(log, keys[0]).session(keys[0])
    lost = getattr(own, piece)
    if piece == "messages":
        lost += (await view_of(cache, log, keys[0])).meta[b"mk"]
    assert await cache.call("DEL", lost) == 1
    for key in keys:
        await writer.say(key, "after the loss")
    await worker.once()
    for key in keys:
        await assert_equals_truth(cache, writer, key)
    assert worker.metrics.registry.get_sample_value("surfacelog_projector_refolded_sessions_total") == 1


async def test_losing_the_whole_cache_is_healed_from_the_log_and_said_meanwhile(log: MemoryLog) -> None:
    cache = MemoryCache()
    writer = LogWriter(log)
    key = await writer.open("s")
    worker = make_worker(log, cache, batch_records=5)
    for _ in range(20):
        await writer.step(key)
    await worker.once()
    cache.flush()
    projection = PartitionProjection(
        make_site(log, cache, writer.partition(key), ProjectorSettings()), States(10, 1 << 20), ProjectorMetrics()
    )
    await projection.open()
    await projection.advance(5)
    view = await view_of(cache, log, key)
    assert view.checkpoint is not None
    assert view.checkpoint.rebuilding
    await worker.once()
    await assert_equals_truth(cache, writer, key)
    view = await view_of(cache, log, key)
    assert view.checkpoint is not None
    assert not view.checkpoint.rebuilding


async def test_a_stale_worker_neither_overwrites_nor_doubles(log: MemoryLog) -> None:
    cache = MemoryCache()
    writer = LogWriter(log)
    key = await writer.open("s")
    first, second = make_worker(log, cache), make_worker(log, cache)
    for _ in range(10):
        await writer.step(key)
    await first.once()
    for _ in range(10):
        await writer.step(key)
    await second.once()
    stale = first.projections[writer.partition(key)]
    records = await log.read(writer.partition(key), 0, 1000, 1000)
    with pytest.raises(Moved):
        await stale.project(records)
    await assert_equals_truth(cache, writer, key)


async def test_a_worker_with_room_for_one_state_and_small_calls_projects_the_same(
    cache: Cache, log: MemoryLog
) -> None:
    writer = LogWriter(log, seed=9)
    worker = make_worker(log, cache, batch_records=50, states_count=1, call_values=40)
    keys = [await writer.open(f"s{index}") for index in range(6)]
    for _ in range(6):
        for key in keys * 5:
            await writer.step(key)
        await worker.once()
        assert len(worker.states) == 1
    for key in keys:
        await assert_equals_truth(cache, writer, key)


async def test_a_deleted_session_leaves_a_tombstone_and_nothing_else(cache: Cache, log: MemoryLog) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for _ in range(10):
        await writer.step(key)
    worker = make_worker(log, cache)
    await worker.once()
    pointer = (await view_of(cache, log, key)).meta[b"mk"]
    state = writer.truths[key].state
    await writer.put(key, Record("delete", "the-delete", state.open_id.encode()))
    await worker.once()
    view = await view_of(cache, log, key)
    assert view.whole
    assert view.state is not None
    assert view.state.status == "deleted"
    assert view.entry is not None
    assert view.entry.status == "deleted"
    own = partition_keys(log, key).session(key)
    gone = (own.surface, own.transcript, own.tail, own.offsets, own.headers, own.tools, own.messages + pointer)
    assert [await cache.call("EXISTS", name) for name in gone] == [0] * len(gone)
    await writer.put(key, Record("commit", "too-late", b"{}", seq=0, prev=state.chain), "rejected")
    await worker.once()
    assert pieces((await view_of(cache, log, key)).state or state) == pieces(state)


async def test_states_that_were_dropped_for_room_are_loaded_again_and_stay_equal(
    cache: Cache, log: MemoryLog
) -> None:
    writer = LogWriter(log, seed=11)
    names = [name for name in map(str, range(60)) if writer.partition(f"t/{name}".encode()) == 0][:5]
    keys = [await writer.open(name) for name in names]
    states = States(2, 1 << 30)
    projection = PartitionProjection(make_site(log, cache, 0, ProjectorSettings()), states, ProjectorMetrics())
    reads = 0
    run = cache.run

    async def counted(script: Script, names: Sequence[bytes], args: Sequence[Argument]) -> Any:
        nonlocal reads
        reads += script is STATE_SCRIPT
        return await run(script, names, args)

    await projection.open()
    await projection.advance(1 << 40)
    cache.run = counted  # type: ignore[method-assign]
    for number in range(30):
        key = keys[number % len(keys)]
        for _ in range(3):
            await writer.step(key)
        await projection.advance(1 << 40)
        assert len(states) <= 2
        held = states.get(0, key)
        assert held is not None
        assert pieces(held.state) == pieces(writer.truths[key].state)
    cache.run = run  # type: ignore[method-assign]
    assert reads == 30, "every session was dropped before its turn came again"
    for key in keys:
        await assert_equals_truth(cache, writer, key)
