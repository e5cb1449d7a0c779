"""Kafka goes away, in part or whole: what was acknowledged is there, what was refused is not, all of it heals."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import pytest

from producer.kafka_log import KafkaLog
from producer.log import LogRecord, ProduceUnknown, Unavailable
from producer.settings import ServerSettings
from tests.servers import Brokers

PARTITIONS = 6


class Writers:
    """One writer for each partition, which sends `at_once` records and more when all of them were answered."""

    def __init__(self, log: KafkaLog, at_once: int = 1) -> None:
        self.log = log
        self.at_once = at_once
        self.told: dict[bytes, int] = {}
        self.refused: set[bytes] = set()
        self.unknown: set[bytes] = set()
        self._ending = False
        self._tasks = [asyncio.create_task(self._write(partition)) for partition in range(PARTITIONS)]

    async def _write(self, partition: int) -> None:
        number = 0
        while not self._ending:
            values = [b"%d/%06d" % (partition, number + place) for place in range(self.at_once)]
            number += self.at_once
            await asyncio.gather(*(self._send(partition, value) for value in values))

    async def _send(self, partition: int, value: bytes) -> None:
        try:
            self.told[value] = await self.log.produce(partition, b"k", [], value, 4_000)
        except Unavailable:
            self.refused.add(value)
        except ProduceUnknown:
            self.unknown.add(value)

    async def end(self) -> None:
        self._ending = True
        await asyncio.gather(*self._tasks)


async def read_all(log: KafkaLog, partition: int) -> list[LogRecord]:
    end = (await log.ends([partition], 20_000))[partition]
    found: list[LogRecord] = []
    while not found or found[-1].offset < end - 1:
        found += await log.read(partition, found[-1].offset + 1 if found else 0, 1000, 10_000)
    return found


async def check(writers: Writers) -> None:
    for partition in range(PARTITIONS):
        records = await read_all(writers.log, partition)
        places = {record.value: record.offset for record in records}
        mine = {value: offset for value, offset in writers.told.items() if value.startswith(b"%d/" % partition)}
        assert {value: places.get(value) for value in mine} == mine, (
            "an acknowledged record is not where it was told"
        )
        assert len(places) == len(records), "a record landed twice"
        assert not places.keys() & writers.refused, "a refused record landed"
        certain = [record.value for record in records if record.value in mine]
        assert certain == sorted(mine), "acknowledged records changed their order"


@pytest.fixture
async def log(kafka_cluster3: Brokers, unique: str) -> AsyncIterator[KafkaLog]:
    settings = ServerSettings(kafka=kafka_cluster3.bootstrap, topic=unique, partitions=PARTITIONS)
    opened = await KafkaLog.open(settings)
    yield opened
    await opened.close()


@pytest.mark.parametrize("at_once", [1, 20])
async def test_a_killed_broker_loses_nothing_and_moves_nothing(
    log: KafkaLog, kafka_cluster3: Brokers, at_once: int
) -> None:
    writers = Writers(log, at_once)
    await asyncio.sleep(1)
    kafka_cluster3.kill(0)
    before = len(writers.told)
    async with asyncio.timeout(60):
        while len({value[:1] for value in list(writers.told)[before:]}) < PARTITIONS:
            await asyncio.sleep(0.1)
    await writers.end()
    await check(writers)


async def test_without_brokers_producers_are_told_that_nothing_was_written_and_go_on_later(
    log: KafkaLog, kafka_cluster3: Brokers
) -> None:
    writers = Writers(log)
    await asyncio.sleep(1)
    for index in range(3):
        kafka_cluster3.kill(index)
    async with asyncio.timeout(40):
        while not writers.refused:
            await asyncio.sleep(0.1)
    with pytest.raises(Unavailable, match="nothing was written"):
        await log.produce(0, b"k", [], b"0/", 300)
    writers.refused.add(b"0/")
    with pytest.raises(Unavailable):
        await log.ends([0], 500)
    with pytest.raises(Unavailable):
        await log.read(1, 0, 1, 500)
    # In this thread, which stands still meanwhile: a node ends with the thread that started it.
    kafka_cluster3.heal()
    before = len(writers.told)
    async with asyncio.timeout(40):
        while len(writers.told) < before + 50:
            await asyncio.sleep(0.1)
    await writers.end()
    await check(writers)


async def test_a_paused_broker_does_not_make_the_end_stale(log: KafkaLog, kafka_cluster3: Brokers) -> None:
    for partition in range(PARTITIONS):
        await log.produce(partition, b"k", [], b"x", 10_000)
    kafka_cluster3.pause(2)
    try:
        offsets = await asyncio.gather(
            *(log.produce(partition, b"k", [], b"y", 40_000) for partition in range(PARTITIONS))
        )
        ends = await log.ends(range(PARTITIONS), 20_000)
        assert [ends[partition] for partition in range(PARTITIONS)] == [offset + 1 for offset in offsets]
    finally:
        kafka_cluster3.resume(2)


async def test_what_a_log_is_closed_on_is_not_told_unwritten_and_found_later(
    kafka_broker: Brokers, unique: str
) -> None:
    settings = ServerSettings(kafka=kafka_broker.bootstrap, topic=unique, partitions=1)
    log = await KafkaLog.open(settings)
    await log.produce(0, b"k", [], b"first", 20_000)
    kafka_broker.pause(0)
    try:
        # The first is on its way while the second is held; closing sends that too, and waits in vain for longer
        # than a frozen broker is waited for. Both are in the queue then, to be sent again.
        asked = [asyncio.create_task(log.produce(0, b"k", [], b"on its way", 60_000))]
        await asyncio.sleep(0.1)
        asked.append(asyncio.create_task(log.produce(0, b"k", [], b"held", 60_000)))
        await asyncio.sleep(0.1)
        await log.close()
        found = await asyncio.gather(*asked, return_exceptions=True)
    finally:
        kafka_broker.resume(0)
    with pytest.raises(Unavailable, match="nothing was written"):
        await log.produce(0, b"k", [], b"too late", 1_000)
    assert [type(answer) for answer in found] == [ProduceUnknown, ProduceUnknown]
    await asyncio.sleep(2)
    log = await KafkaLog.open(settings)
    try:
        # So it must be unknown: it did land.
        assert [record.value for record in await read_all(log, 0)] == [b"first", b"on its way", b"held"]
    finally:
        await log.close()


async def test_a_record_that_the_client_does_not_take_holds_up_nobody(log: KafkaLog) -> None:
    await log.produce(0, b"k", [], b"first", 10_000)
    no_header: list[Any] = [("id", ())]
    answers = await asyncio.gather(
        log.produce(0, b"k", [], b"away", 10_000),
        log.produce(0, b"k", no_header, b"wrong", 10_000),
        log.produce(0, b"k", [], b"behind", 10_000),
        return_exceptions=True,
    )
    assert (answers[0], type(answers[1]), answers[2]) == (1, TypeError, 2)
    assert await log.produce(0, b"k", [], b"later", 10_000) == 3
