"""The in-memory log does what it is told to do wrong, and nothing else."""

import asyncio

import pytest

from producer.log import ProduceUnknown, Unavailable
from producer.memory_log import MemoryLog, MemoryTopic, ProduceFault
from surfacelog.errors import ProtocolError


class Plan:
    """A network with one fate for each produce, in order, and one delay (ms) for every other call."""

    def __init__(self, *faults: ProduceFault, delay_ms: float = 0) -> None:
        self.faults = list(faults)
        self.delay_ms = delay_ms
        self.cut = False

    def produce(self, partition: int, key: bytes, headers: object, value: bytes) -> ProduceFault:
        return self.faults.pop(0) if self.faults else ProduceFault()

    def call(self, name: str) -> float:
        if self.cut:
            raise Unavailable("cut")
        return self.delay_ms


def values(topic: MemoryTopic, partition: int = 0) -> list[bytes | None]:
    return [record.value for record in topic.slice(partition, 0, 1000, 1 << 20)]


async def test_an_unknown_outcome_may_have_landed_or_not() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic, Plan(ProduceFault("unknown"), ProduceFault("unknown", copies=0)))
    for value in (b"landed", b"lost"):
        with pytest.raises(ProduceUnknown):
            await log.produce(0, b"k", [], value, 1000)
    assert values(topic) == [b"landed"]


async def test_a_second_copy_lands_later() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic, Plan(ProduceFault(copies=2, again_ms=20)))
    assert await log.produce(0, b"k", [], b"twice", 1000) == 0
    assert await log.produce(0, b"k", [], b"other", 1000) == 1
    await asyncio.sleep(0.05)
    assert values(topic) == [b"twice", b"other", b"twice"]


async def test_unavailable_means_that_nothing_was_written() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic, Plan(ProduceFault("unavailable")))
    with pytest.raises(Unavailable):
        await log.produce(0, b"k", [], b"x", 1000)
    assert values(topic) == []


async def test_a_late_answer_is_an_unknown_outcome_and_the_record_lands_all_the_same() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic, Plan(ProduceFault(land_ms=60)))
    with pytest.raises(ProduceUnknown):
        await log.produce(0, b"k", [], b"late", 20)
    assert values(topic) == []
    await asyncio.sleep(0.08)
    assert values(topic) == [b"late"]


async def test_a_slow_record_is_not_overtaken_by_the_same_client_but_by_another() -> None:
    topic = MemoryTopic(1)
    log, other = MemoryLog(topic, Plan(ProduceFault(land_ms=30))), MemoryLog(topic)
    slow = asyncio.create_task(log.produce(0, b"k", [], b"slow", 1000))
    await asyncio.sleep(0)
    fast = asyncio.create_task(log.produce(0, b"k", [], b"fast", 1000))
    assert await other.produce(0, b"k", [], b"other", 1000) == 0
    assert (await slow, await fast) == (1, 2)
    assert values(topic) == [b"other", b"slow", b"fast"]


async def test_a_cancelled_producer_does_not_take_its_record_back() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic, Plan(ProduceFault(land_ms=10)))
    task = asyncio.create_task(log.produce(0, b"k", [], b"x", 1000))
    await asyncio.sleep(0)
    task.cancel()
    await asyncio.sleep(0.03)
    assert values(topic) == [b"x"]


async def test_a_call_sees_the_log_as_it_was_on_the_way() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic, Plan(delay_ms=40))
    asking = asyncio.create_task(log.ends([0], 1000))
    await asyncio.sleep(0.005)
    topic.append(0, b"k", [], b"before it arrived", 0)
    await asyncio.sleep(0.025)
    topic.append(0, b"k", [], b"after it left", 0)
    assert await asking == {0: 1}


async def test_a_cut_network_is_unavailable() -> None:
    plan = Plan()
    log = MemoryLog(MemoryTopic(1), plan)
    plan.cut = True
    for call in (log.ends([0], 100), log.starts([0], 100), log.read(0, 0, 1, 100)):
        with pytest.raises(Unavailable):
            await call


async def test_a_call_slower_than_its_timeout_is_unavailable() -> None:
    log = MemoryLog(MemoryTopic(1), Plan(delay_ms=500))
    with pytest.raises(Unavailable):
        await log.ends([0], 20)


async def test_an_expelled_member_is_told_in_its_next_fetch_and_joins_again() -> None:
    topic = MemoryTopic(2)
    log = MemoryLog(topic)
    async with log.consumer("g", "one") as one, log.consumer("g", "two") as two:
        assert (await one.fetch(10, 0)).assigned == (0,)
        assert (await two.fetch(10, 0)).assigned == (1,)
        topic.group("g").expel("one")
        assert (await two.fetch(10, 0)).assigned == (0,)
        assert topic.group("g").owners == {0: "two", 1: "two"}
        # It believed until now that it has the partition.
        batch = await one.fetch(10, 0)
        assert (batch.lost, batch.assigned) == ((0,), ())
        assert (await two.fetch(10, 0)).lost == (0,)
        assert (await one.fetch(10, 0)).assigned == (0,)


async def test_an_expelled_member_that_gets_its_partition_back_loses_it_in_between() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic)
    topic.append(0, b"k", [], b"x", 0)
    async with log.consumer("g", "one") as one:
        await one.fetch(10, 0)
        await one.seek(0, 0)
        topic.group("g").expel("one")
        batch = await one.fetch(10, 0)
        assert (batch.lost, batch.assigned, batch.records) == ((0,), (0,), {})
        assert (await one.fetch(10, 0)).records == {}


async def test_a_placed_partition_goes_where_the_test_wants_it() -> None:
    topic = MemoryTopic(2)
    log = MemoryLog(topic)
    async with log.consumer("g", "one") as one, log.consumer("g", "two") as two:
        await one.fetch(10, 0)
        await two.fetch(10, 0)
        topic.group("g").place(0, "two")
        assert (await two.fetch(10, 0)).assigned == ()
        assert (await one.fetch(10, 0)).lost == (0,)
        assert (await two.fetch(10, 0)).assigned == (0,)


async def test_a_lost_suffix_is_noticed_by_a_consumer_that_had_read_it() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic)
    for value in (b"a", b"b", b"c"):
        topic.append(0, b"k", [], value, 0)
    async with log.consumer("g", "one") as one:
        await one.fetch(10, 0)
        await one.seek(0, 0)
        assert len((await one.fetch(10, 0)).records[0]) == 3
        topic.truncate_from(0, 1)
        with pytest.raises(ProtocolError) as caught:
            await one.fetch(10, 0)
        assert caught.value.code == "log-truncated"
    assert topic.append(0, b"k", [], b"new", 0) == 1


async def test_a_topic_made_anew_is_empty_and_has_another_id() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic)
    before = log.topic_id
    await log.produce(0, b"k", [], b"x", 100)
    topic.recreate()
    assert log.topic_id != before
    assert await log.ends([0], 100) == {0: 0}


async def test_gaps_in_the_offsets_are_passed_over() -> None:
    topic = MemoryTopic(1)
    log = MemoryLog(topic)
    topic.append(0, b"k", [], b"a", 0)
    topic.skip(0, 5)
    topic.append(0, b"k", [], b"b", 0)
    assert [(r.offset, r.value) for r in await log.read(0, 1, 10, 100)] == [(6, b"b")]
    async with log.consumer("g", "one") as one:
        await one.fetch(10, 0)
        await one.seek(0, 2)
        assert [r.offset for r in (await one.fetch(10, 0)).records[0]] == [6]
