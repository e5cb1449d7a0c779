"""Workers join, end and oversleep under load: partitions move, none has two workers, no record is left out."""

import asyncio
import random

import pytest

from producer.kafka_log import KafkaLog
from producer.log import Batch, LogConsumer, Unavailable
from producer.settings import ServerSettings

PARTITIONS = 6
RECORDS = 300


class Room:
    """What all workers share: the checkpoints, and who works on which partition."""

    def __init__(self, log: KafkaLog) -> None:
        self.log = log
        self.next = dict.fromkeys(range(PARTITIONS), 0)
        self.holder: dict[int, str] = {}
        self.moves = 0

    @property
    def done(self) -> bool:
        return all(place >= RECORDS for place in self.next.values())

    async def work(self, name: str, batches_max: int, group: str) -> None:
        async with self.log.consumer(group, name) as consumer:
            for _ in range(batches_max):
                if self.done:
                    break
                await self._step(consumer, name)
        # A member that ends has nothing in flight.
        self.holder = {partition: holder for partition, holder in self.holder.items() if holder != name}

    async def _step(self, consumer: LogConsumer, name: str) -> None:
        batch = await consumer.fetch(50, 200)
        for partition in batch.lost:
            if self.holder.get(partition) == name:
                del self.holder[partition]
        for partition in batch.assigned:
            assert self.holder.get(partition) is None, f"{self.holder[partition]} still has partition {partition}"
            self.holder[partition] = name
            self.moves += 1
            await consumer.seek(partition, self.next[partition])
        for partition, records in batch.records.items():
            # Work takes time, in which a rebalance waits for this member.
            await asyncio.sleep(random.random() * 0.02)
            assert self.holder[partition] == name
            for record in records:
                assert record.offset == self.next[partition]
                self.next[partition] += 1


async def write(log: KafkaLog) -> None:
    for number in range(RECORDS):
        await asyncio.gather(*(log.produce(p, b"k", [], b"%d" % number, 20_000) for p in range(PARTITIONS)))
        await asyncio.sleep(0.03)


async def test_workers_that_come_and_go_share_the_work_and_never_a_partition(kafka: str, unique: str) -> None:
    log = await KafkaLog.open(ServerSettings(kafka=kafka, topic=unique, partitions=PARTITIONS))
    room = Room(log)

    async def come_and_go(name: str) -> None:
        while not room.done:
            await room.work(name, random.randrange(10, 60), unique)
            await asyncio.sleep(random.random())

    async with asyncio.timeout(90):
        await asyncio.gather(
            write(log), room.work("steady", 1_000_000, unique), come_and_go("guest"), come_and_go("other")
        )
    assert room.moves > 2 * PARTITIONS, "nothing moved: the test has shown nothing"
    await log.close()


async def test_a_worker_that_oversleeps_loses_its_partitions_and_is_told(kafka: str, unique: str) -> None:
    settings = ServerSettings(
        kafka=kafka, topic=unique, partitions=PARTITIONS, session_timeout_ms=6_000, poll_interval_max_ms=6_000
    )
    log = await KafkaLog.open(settings)
    await write_some(log, 0)
    async with log.consumer(unique, "sleeper") as sleeper, log.consumer(unique, "awake") as awake:
        held: dict[str, set[int]] = {"sleeper": set(), "awake": set()}

        async def step(name: str, consumer: LogConsumer) -> bool:
            batch = await consumer.fetch(100, 100)
            held[name] = (held[name] - set(batch.lost)) | set(batch.assigned)
            return bool(batch.lost)

        async with asyncio.timeout(40):
            while len(held["sleeper"]) != 3 or len(held["awake"]) != 3:
                await step("sleeper", sleeper)
                await step("awake", awake)
            while len(held["awake"]) != PARTITIONS:
                await step("awake", awake)
            # Until its next fetch it cannot know; its checkpoint would be refused.
            assert len(held["sleeper"]) == 3
            while not await step("sleeper", sleeper):
                await step("awake", awake)
            while len(held["sleeper"]) != 3 or len(held["awake"]) != 3:
                await step("sleeper", sleeper)
                await step("awake", awake)
    await log.close()


async def write_some(log: KafkaLog, partition: int) -> None:
    for _ in range(10):
        await log.produce(partition, b"k", [], b"x", 20_000)


async def test_a_closed_consumer_says_so(kafka: str, unique: str) -> None:
    log = await KafkaLog.open(ServerSettings(kafka=kafka, topic=unique, partitions=PARTITIONS))
    async with log.consumer(unique, "one") as consumer:
        async with asyncio.timeout(20):
            while not (await consumer.fetch(1, 200)).assigned:
                pass
        waiting = asyncio.create_task(consumer.fetch(1, 20_000))
        await asyncio.sleep(0.2)
    assert await waiting == Batch({})
    with pytest.raises(Unavailable, match="closed"):
        await consumer.fetch(1, 100)
    await log.close()
