"""What every event log promises to who writes and reads: memory, SQLite and Kafka run the same tests."""

import asyncio
import random
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from producer.log import LogRecord, check_size
from surfacelog.errors import ProtocolError
from tests.contract.log_room import LOGS, PARTITIONS, TIMEOUT_MS, Bench, open_bench, put, values


@pytest.fixture(params=LOGS)
async def bench(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[Bench]:
    async with open_bench(request, tmp_path) as made:
        yield made


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


async def test_reading_on_sees_what_was_written_after_the_last_read(bench: Bench) -> None:
    for number in range(20):
        await put(bench.log, 0, b"%d" % number)
        (record,) = await bench.log.read(0, number, 1, TIMEOUT_MS)
        assert record.value == b"%d" % number
        # Time enough for a client to run into the end and remember it.
        await asyncio.sleep(0.01)


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
    body = random.Random(7).randbytes(room + 1)
    assert await bench.log.produce(0, b"k", headers, body[:room], TIMEOUT_MS) == 0
    with pytest.raises(ProtocolError) as caught:
        await bench.log.produce(0, b"k", headers, body[: room + 1], TIMEOUT_MS)
    assert caught.value.code == "too-large"
    assert caught.value.detail["size_bytes"] == bench.log.size_bytes_max + 1
    assert await bench.log.produce(0, b"k", headers, b"small", TIMEOUT_MS) == 1
    (record,) = await bench.log.read(0, 0, 1, TIMEOUT_MS)
    assert record.value == body[:room]


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
