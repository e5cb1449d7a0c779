"""What every event log promises to its consumers: memory, SQLite and Kafka run the same tests."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from producer.log import Batch, LogConsumer, LogRecord, Unavailable
from surfacelog.errors import ProtocolError
from tests.contract.log_room import LOGS, PARTITIONS, TIMEOUT_MS, Bench, open_bench, put, values


@pytest.fixture(params=LOGS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(request, tmp_path) as made:
        yield made


async def until_assigned(consumer: LogConsumer, count: int) -> set[int]:
    """Fetches until the member has `count` partitions."""
    held: set[int] = set()
    async with asyncio.timeout(30):
        while len(held) != count:
            batch = await consumer.fetch(100, 200)
            held = (held - set(batch.lost)) | set(batch.assigned)
            assert not batch.records, "nothing is delivered before a seek"
    return held


async def collect(consumer: LogConsumer, count: int, records_max: int = 100) -> list[LogRecord]:
    """Fetches until `count` records came."""
    found: list[LogRecord] = []
    async with asyncio.timeout(20):
        while len(found) < count:
            batch = await consumer.fetch(records_max, 500)
            assert not batch.lost
            for records in batch.records.values():
                found.extend(records)
    return found


async def test_a_consumer_delivers_nothing_until_it_was_told_where_to_start(bench: Bench) -> None:
    await put(bench.log, 0, b"a", b"b", b"c")
    await put(bench.log, 1, b"d")
    async with bench.log.consumer(bench.group, "one") as consumer:
        assert await until_assigned(consumer, PARTITIONS) == set(range(PARTITIONS))
        assert (await consumer.fetch(10, 100)).records == {}
        await consumer.seek(0, 1)
        assert values(await collect(consumer, 2)) == [b"b", b"c"]
        assert (await consumer.fetch(10, 100)).records == {}
        await consumer.seek(1, 0)
        assert values(await collect(consumer, 1)) == [b"d"]


async def test_a_fetch_brings_no_more_than_was_asked_for_and_loses_nothing(bench: Bench) -> None:
    sent = [b"%d" % number for number in range(100)]
    await put(bench.log, 0, *sent)
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        await consumer.seek(0, 0)
        found: list[bytes | None] = []
        while len(found) < 100:
            batch = await consumer.fetch(7, 1000)
            assert sum(map(len, batch.records.values())) <= 7
            found += values(batch.records.get(0, []))
        assert found == sent


async def test_a_seek_repeats_and_leaps_exactly(bench: Bench) -> None:
    await asyncio.gather(*(bench.log.produce(0, b"k", [], b"%d" % n, TIMEOUT_MS) for n in range(1000)))
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        for offset in (0, 500, 3, 998, 3, 4, 0):
            await consumer.seek(0, offset)
            # Others are prefetched by now: none of them may come after the next seek.
            first = (await collect(consumer, 1, records_max=2))[:2]
            assert [record.offset for record in first] == [offset, offset + 1][: len(first)]


async def test_a_paused_partition_is_silent_until_it_is_sought(bench: Bench) -> None:
    await put(bench.log, 0, b"a", b"b", b"c")
    await put(bench.log, 1, b"d")
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        await consumer.seek(0, 0)
        await collect(consumer, 1, records_max=1)
        consumer.pause(0)
        await consumer.seek(1, 0)
        assert values(await collect(consumer, 1)) == [b"d"]
        assert (await consumer.fetch(10, 200)).records == {}
        await consumer.seek(0, 1)
        assert values(await collect(consumer, 2)) == [b"b", b"c"]


async def test_a_waiting_fetch_is_woken_by_a_new_record(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        await consumer.seek(0, 0)
        waiting = asyncio.create_task(consumer.fetch(10, 20_000))
        await asyncio.sleep(0.3)
        began = loop.time()
        await put(bench.log, 0, b"a")
        batch = await waiting
        assert values(batch.records[0]) == [b"a"]
        assert loop.time() - began < 1


async def test_a_fetch_waits_as_long_as_it_was_told(bench: Bench) -> None:
    loop = asyncio.get_running_loop()
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        began = loop.time()
        assert await consumer.fetch(10, 300) == Batch({})
        assert 0.25 < loop.time() - began < 2


async def test_a_cancelled_fetch_loses_nothing(bench: Bench) -> None:
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        await consumer.seek(0, 0)
        found: list[LogRecord] = []
        for number in range(30):
            fetching = asyncio.create_task(consumer.fetch(10, 1000))
            await asyncio.sleep(0.002 * (number % 3))
            producing = asyncio.create_task(put(bench.log, 0, b"%d" % number))
            await asyncio.sleep(0.001 * (number % 5))
            if not fetching.cancel():
                found += fetching.result().records.get(0, [])
            await producing
            await asyncio.wait([fetching])
        found += await collect(consumer, 30 - len(found))
        assert values(found) == [b"%d" % number for number in range(30)]


async def test_two_members_share_all_partitions_and_none_is_held_twice(bench: Bench) -> None:
    async with bench.log.consumer(bench.group, "one") as one:
        first = await until_assigned(one, PARTITIONS)
        async with bench.log.consumer(bench.group, "two") as two:
            second: set[int] = set()
            async with asyncio.timeout(30):
                while len(first) != PARTITIONS // 2 or len(second) != PARTITIONS // 2:
                    batch = await one.fetch(10, 50)
                    first = (first - set(batch.lost)) | set(batch.assigned)
                    batch = await two.fetch(10, 50)
                    second = (second - set(batch.lost)) | set(batch.assigned)
                    assert not first & second, "a partition was given before it was taken"
            assert first | second == set(range(PARTITIONS))


async def test_a_member_that_ends_leaves_its_partitions_to_the_others(bench: Bench) -> None:
    async with bench.log.consumer(bench.group, "one") as one:
        await until_assigned(one, PARTITIONS)
        async with bench.log.consumer(bench.group, "two") as two:
            held = set(range(PARTITIONS))
            other: set[int] = set()
            async with asyncio.timeout(30):
                while len(held) != PARTITIONS // 2 or len(other) != PARTITIONS // 2:
                    batch = await one.fetch(10, 50)
                    held = (held - set(batch.lost)) | set(batch.assigned)
                    batch = await two.fetch(10, 50)
                    other = (other - set(batch.lost)) | set(batch.assigned)
        async with asyncio.timeout(30):
            while len(held) != PARTITIONS:
                batch = await one.fetch(10, 200)
                held = (held - set(batch.lost)) | set(batch.assigned)


async def test_a_second_member_of_the_same_name_puts_the_first_out(bench: Bench) -> None:
    async with bench.log.consumer(bench.group, "one") as old:
        await until_assigned(old, PARTITIONS)
        async with bench.log.consumer(bench.group, "one") as new:
            await until_assigned(new, PARTITIONS)

            async def fetch_for_ever() -> None:
                while True:
                    assert not (await old.fetch(10, 200)).records

            with pytest.raises(Unavailable):
                await asyncio.wait_for(fetch_for_ever(), 20)


async def test_groups_do_not_know_each_other(bench: Bench) -> None:
    await put(bench.log, 0, b"a")
    async with (
        bench.log.consumer(bench.group, "one") as one,
        bench.log.consumer(bench.group + "-other", "one") as other,
    ):
        await until_assigned(one, PARTITIONS)
        await until_assigned(other, PARTITIONS)
        for consumer in (one, other):
            await consumer.seek(0, 0)
            assert values(await collect(consumer, 1)) == [b"a"]


@pytest.mark.parametrize("place", ["before the start", "beyond the end"])
async def test_a_place_that_is_not_in_the_log_is_told_once_and_the_others_go_on(bench: Bench, place: str) -> None:
    await put(bench.log, 0, b"a", b"b", b"c")
    await put(bench.log, 1, b"d")
    await bench.truncate_before(0, 1)
    async with bench.log.consumer(bench.group, "one") as consumer:
        await until_assigned(consumer, PARTITIONS)
        await consumer.seek(0, 0 if place == "before the start" else 50)
        await consumer.seek(1, 0)
        told: list[ProtocolError] = []
        found: list[bytes | None] = []
        async with asyncio.timeout(20):
            while not told or not found:
                try:
                    batch = await consumer.fetch(10, 200)
                except ProtocolError as error:
                    told.append(error)
                else:
                    found += [value for records in batch.records.values() for value in values(records)]
        assert (told[0].code, told[0].detail["partition"]) == ("log-truncated", 0)
        assert found == [b"d"]
        assert (await consumer.fetch(10, 300)).records == {}
        await consumer.seek(0, 1)
        assert values(await collect(consumer, 2)) == [b"b", b"c"]


async def test_a_seek_of_a_partition_that_another_member_has_does_nothing(bench: Bench) -> None:
    await put(bench.log, 0, b"a")
    async with bench.log.consumer(bench.group, "one") as one:
        await one.seek(0, 0)
        assert await until_assigned(one, PARTITIONS) == set(range(PARTITIONS))
        assert (await one.fetch(10, 100)).records == {}
