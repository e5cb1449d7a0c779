"""The bare broker, as the baseline of every append figure: the same bytes, headers and partitions, idempotent
produce with acks=all and a plain consumer in a process of its own, without anything of the ledger."""

import multiprocessing
import statistics
import time
from collections.abc import Sequence
from multiprocessing.connection import Connection

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from producer.settings import ServerSettings

__all__ = ["RawRecord", "raw_ack_ms", "raw_rate"]

RawRecord = tuple[int, bytes, list[tuple[str, bytes]], bytes]


class _Plan(msgspec.Struct, frozen=True):
    kafka: str
    topic: str
    partitions: int
    count: int


def _producer(servers: ServerSettings) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers.kafka,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": servers.kafka_linger_ms,
            "compression.type": servers.kafka_compression,
            "queue.buffering.max.messages": 1_000_000,
        }
    )


def raw_rate(servers: ServerSettings, topic: str, records: Sequence[RawRecord]) -> float:
    """Records a second from the first produce until a consumer in another process has read the last."""
    assert servers.kafka is not None
    plan = _Plan(servers.kafka, topic, servers.partition_count, len(records))
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    child = multiprocessing.get_context("spawn").Process(target=_consume, args=(plan, theirs))
    child.start()
    ours.recv()
    producer = _producer(servers)
    started = time.perf_counter()
    for partition, key, headers, value in records:
        producer.produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        producer.poll(0)
    producer.flush()
    ours.recv()
    elapsed_s = time.perf_counter() - started
    child.join()
    return len(records) / elapsed_s


def _consume(plan: _Plan, said: Connection) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": plan.kafka,
            "group.id": "raw",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(plan.topic, number, 0) for number in range(plan.partitions)])
    consumer.poll(1)
    said.send("ready")
    seen = 0
    while seen < plan.count:
        first = consumer.poll(1)
        messages = [] if first is None else [first, *consumer.consume(2000, 0)]
        for message in messages:
            if message.error() is None:
                message.headers()
                message.value()
                seen += 1
    said.send("done")
    consumer.close()


def raw_ack_ms(servers: ServerSettings, topic: str, records: Sequence[RawRecord]) -> float:
    """The median time, ms, until the broker acknowledges one record, one after another."""
    producer = _producer(servers)
    times: list[float] = []
    done: list[float] = []

    def told(error: object, message: Message) -> None:
        done.append(time.perf_counter())

    for partition, key, headers, value in records:
        started = time.perf_counter()
        producer.produce(topic, value, key, partition, on_delivery=told, headers=headers)  # type: ignore[arg-type]
        while not done:
            producer.poll(1)
        times.append(done.pop() - started)
    producer.flush()
    return statistics.median(times) * 1000
