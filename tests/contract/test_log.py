"""What every event log promises, whichever stands behind it: memory, SQLite and Kafka run the same tests."""

import asyncio
import sqlite3
import uuid
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Protocol

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from producer.kafka_log import KafkaLog
from producer.log import Batch, EventLog, LogConsumer, LogRecord, Unavailable, check_size
from producer.memory_log import MemoryLog, MemoryTopic
from producer.settings import ServerSettings
from producer.sqlite_log import SqliteLog
from surfacelog.errors import ProtocolError

PARTITIONS = 6
TIMEOUT_MS = 10_000


class Bench(Protocol):
    """A log under test, and what a test needs to do behind its back."""

    log: EventLog
    group: str

    async def truncate_before(self, partition: int, offset: int) -> None: ...
    async def reopen(self) -> EventLog: ...


class MemoryBench:
    def __init__(self) -> None:
        self.group = "g"
        self.topic = MemoryTopic(PARTITIONS)
        self.log: EventLog = MemoryLog(self.topic)

    async def truncate_before(self, partition: int, offset: int) -> None:
        self.topic.truncate_before(partition, offset)

    async def reopen(self) -> EventLog:
        await self.log.close()
        self.log = MemoryLog(self.topic)
        return self.log


class SqliteBench:
    def __init__(self, path: Path, log: EventLog) -> None:
        self.group = "g"
        self.path = path
        self.log = log

    async def truncate_before(self, partition: int, offset: int) -> None:
        db = sqlite3.connect(self.path / "log.sqlite")
        low = partition << 48
        db.execute("DELETE FROM records WHERE place >= ? AND place < ?", (low, low + offset))
        db.commit()
        db.close()

    async def reopen(self) -> EventLog:
        await self.log.close()
        self.log = await SqliteLog.open(self.path)
        return self.log


class KafkaBench:
    def __init__(self, settings: ServerSettings, log: EventLog) -> None:
        # Kafka keeps a static member of a group for a while after it ended.
        self.group = settings.topic
        self.settings = settings
        self.log = log

    async def truncate_before(self, partition: int, offset: int) -> None:
        admin = AdminClient({"bootstrap.servers": str(self.settings.kafka)})
        place = TopicPartition(self.settings.topic, partition, offset)
        await asyncio.wrap_future(admin.delete_records([place])[place])

    async def reopen(self) -> EventLog:
        await self.log.close()
        self.log = await KafkaLog.open(self.settings)
        return self.log


@pytest.fixture(params=["memory", "sqlite", "kafka"])
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    made: Bench
    if request.param == "memory":
        made = MemoryBench()
    elif request.param == "sqlite":
        made = SqliteBench(tmp_path, await SqliteLog.open(tmp_path, partitions=PARTITIONS))
    else:
        settings = ServerSettings(
            kafka=request.getfixturevalue("kafka"), topic=f"t-{uuid.uuid4().hex[:12]}", partitions=PARTITIONS
        )
        made = KafkaBench(settings, await KafkaLog.open(settings))
    yield made
    await made.log.close()


async def put(log: EventLog, partition: int, *values: bytes) -> list[int]:
    return [await log.produce(partition, b"t/s", [("kind", b"commit")], value, TIMEOUT_MS) for value in values]


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


def values(records: list[LogRecord]) -> list[bytes | None]:
    return [record.value for record in records]


async def test_a_record_comes_back_byte_for_byte(bench: Bench) -> None:
    headers = [("kind", b"commit"), ("prev", bytes(range(256))), ("empty", b""), ("kind", b"twice")]
    value = "\x00\u2028\U0001f600".encode() + b"\xff\n"
    offset = await bench.log.produce(2, b"tenant/%00", headers, value, TIMEOUT_MS)
    empty = await bench.log.produce(2, b"k", [], b"", TIMEOUT_MS)
    first, second = await bench.log.read(2, offset, 2, TIMEOUT_MS)
    assert (first.partition, first.offset, first.key, first.value) == (2, offset, b"tenant/%00", value)
    assert first.headers == headers
    assert (second.offset, second.headers, second.value or b"") == (empty, [], b"")


async def test_offsets_grow_and_partitions_are_apart(bench: Bench) -> None:
    assert await put(bench.log, 0, b"a", b"b") == [0, 1]
    assert await put(bench.log, 5, b"c") == [0]
    assert values(await bench.log.read(0, 0, 10, TIMEOUT_MS)) == [b"a", b"b"]
    assert values(await bench.log.read(5, 0, 10, TIMEOUT_MS)) == [b"c"]


async def test_records_produced_one_after_another_keep_their_order(bench: Bench) -> None:
    sent = [b"%d" % number for number in range(500)]
    offsets = await asyncio.gather(*(bench.log.produce(1, b"k", [], value, TIMEOUT_MS) for value in sent))
    assert offsets == sorted(offsets)
    found: list[LogRecord] = []
    while len(found) < 500:
        found += await bench.log.read(1, len(found), 1000, TIMEOUT_MS)
    assert values(found) == sent


async def test_the_end_is_past_every_acknowledged_record(bench: Bench) -> None:
    everything = range(PARTITIONS)
    assert await bench.log.ends(everything, TIMEOUT_MS) == dict.fromkeys(everything, 0)
    for _ in range(20):
        offset = await bench.log.produce(3, b"k", [], b"x", TIMEOUT_MS)
        assert (await bench.log.ends([3], TIMEOUT_MS))[3] == offset + 1
    ends = await bench.log.ends(everything, TIMEOUT_MS)
    assert ends == {**dict.fromkeys(everything, 0), 3: 20}


async def test_many_may_ask_for_ends_at_once_and_each_gets_a_fresh_answer(bench: Bench) -> None:
    async def write_and_ask(partition: int) -> None:
        for _ in range(10):
            offset = await bench.log.produce(partition, b"k", [], b"x", TIMEOUT_MS)
            assert (await bench.log.ends([partition], TIMEOUT_MS))[partition] > offset

    await asyncio.gather(*(write_and_ask(number % PARTITIONS) for number in range(30)))
    assert set((await bench.log.ends(range(PARTITIONS), TIMEOUT_MS)).values()) == {50}


async def test_the_start_moves_when_retention_takes_records(bench: Bench) -> None:
    await put(bench.log, 0, b"a", b"b", b"c")
    assert await bench.log.starts([0, 1], TIMEOUT_MS) == {0: 0, 1: 0}
    await bench.truncate_before(0, 2)
    assert await bench.log.starts([0, 1], TIMEOUT_MS) == {0: 2, 1: 0}


async def test_a_read_gives_as_many_as_were_asked_for_and_nothing_at_the_end(bench: Bench) -> None:
    await put(bench.log, 0, b"a", b"b", b"c")
    assert values(await bench.log.read(0, 1, 1, TIMEOUT_MS)) == [b"b"]
    assert values(await bench.log.read(0, 1, 50, TIMEOUT_MS)) == [b"b", b"c"]
    assert await bench.log.read(0, 3, 1, TIMEOUT_MS) == []
    assert await bench.log.read(0, 77, 1, TIMEOUT_MS) == []
    assert await bench.log.read(4, 0, 1, TIMEOUT_MS) == []
    assert await put(bench.log, 0, b"d") == [3]
    assert values(await bench.log.read(0, 3, 1, TIMEOUT_MS)) == [b"d"]


async def test_reads_in_any_order_and_at_once_do_not_mix(bench: Bench) -> None:
    for partition in range(3):
        await asyncio.gather(
            *(bench.log.produce(partition, b"k", [], b"%d/%d" % (partition, n), TIMEOUT_MS) for n in range(400))
        )

    async def check(partition: int, offset: int) -> None:
        (record,) = await bench.log.read(partition, offset, 1, TIMEOUT_MS)
        assert (record.partition, record.offset) == (partition, offset)
        assert record.value == b"%d/%d" % (partition, offset)

    places = [(n % 3, n * 7919 % 400) for n in range(60)] + [(0, 10), (0, 11), (0, 150), (0, 140), (0, 399)]
    await asyncio.gather(*(check(*place) for place in places))
    for place in places[-5:]:
        await check(*place)


async def test_a_read_before_the_first_record_is_told_as_truncated(bench: Bench) -> None:
    await put(bench.log, 0, b"a", b"b", b"c")
    await bench.truncate_before(0, 2)
    with pytest.raises(ProtocolError) as caught:
        await bench.log.read(0, 1, 1, TIMEOUT_MS)
    assert caught.value.code == "log-truncated"
    assert values(await bench.log.read(0, 2, 1, TIMEOUT_MS)) == [b"c"]


async def test_the_largest_record_fits_and_one_byte_more_is_refused_with_nothing_used_up(bench: Bench) -> None:
    headers = [("id", b"0" * 36), ("prev", b"\x01" * 32)]
    room = bench.log.size_bytes_max - check_size(b"k", headers, b"", 1000)
    # Random-looking bytes: a log that compresses must not need luck.
    body = b"".join(uuid.uuid5(uuid.NAMESPACE_OID, str(n)).bytes for n in range(room // 16 + 1))
    assert await bench.log.produce(0, b"k", headers, body[:room], TIMEOUT_MS) == 0
    with pytest.raises(ProtocolError) as caught:
        await bench.log.produce(0, b"k", headers, body[: room + 1], TIMEOUT_MS)
    assert caught.value.code == "too-large"
    assert caught.value.detail["size_bytes"] == bench.log.size_bytes_max + 1
    assert await bench.log.produce(0, b"k", headers, b"small", TIMEOUT_MS) == 1
    (record,) = await bench.log.read(0, 0, 1, TIMEOUT_MS)
    assert record.value == body[:room]


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


async def test_closing_finishes_what_is_in_flight(bench: Bench) -> None:
    producing = [
        asyncio.create_task(bench.log.produce(0, b"k", [], b"%d" % number, TIMEOUT_MS)) for number in range(50)
    ]
    await asyncio.sleep(0)
    reopened = await bench.reopen()
    assert [await task for task in producing] == list(range(50))
    assert await reopened.ends([0], TIMEOUT_MS) == {0: 50}


async def test_a_log_is_the_same_one_when_it_is_opened_again(bench: Bench) -> None:
    await put(bench.log, 0, b"a")
    kept = (bench.log.topic, bench.log.topic_id, bench.log.partitions, bench.log.size_bytes_max)
    assert bench.log.topic_id
    reopened = await bench.reopen()
    assert (reopened.topic, reopened.topic_id, reopened.partitions, reopened.size_bytes_max) == kept
    assert values(await reopened.read(0, 0, 1, TIMEOUT_MS)) == [b"a"]
    assert await put(reopened, 0, b"b") == [1]
