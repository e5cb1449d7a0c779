"""The bare broker, as the baseline of every append figure: the same bytes, headers and partitions, idempotent
produce with acks=all and a plain consumer in a process of its own, without anything of the ledger."""

import multiprocessing
import statistics
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from multiprocessing.connection import Connection
from multiprocessing.process import BaseProcess

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition

from producer.settings import ServerSettings

__all__ = ["RawRates", "RawRecord", "raw_ack_ms", "raw_rates"]

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


class RawRates(msgspec.Struct, frozen=True):
    """Records a second. `produce`, `consume`: each by itself. `after`: one after the other, the sum of both times.
    `beside`: both at once, in two processes, until the last record was read."""

    produce: float
    consume: float
    after: float
    beside: float


def raw_rates(servers: ServerSettings, topics: tuple[str, str], records: Sequence[RawRecord]) -> RawRates:
    """The bare broker's rates with these records; `topics` are empty ones."""
    produce_s = _produce(servers, topics[0], records)
    with _reader(servers, topics[0], len(records)) as (told, _):
        told.recv()
        started = time.perf_counter()
        told.send("go")
        told.recv()
        consume_s = time.perf_counter() - started
    with _reader(servers, topics[1], len(records)) as (told, _):
        told.recv()
        started = time.perf_counter()
        told.send("go")
        _produce(servers, topics[1], records)
        told.recv()
        beside_s = time.perf_counter() - started
    count = len(records)
    return RawRates(count / produce_s, count / consume_s, count / (produce_s + consume_s), count / beside_s)


def _produce(servers: ServerSettings, topic: str, records: Sequence[RawRecord]) -> float:
    """Seconds until all are acknowledged."""
    producer = _producer(servers)
    started = time.perf_counter()
    for partition, key, headers, value in records:
        producer.produce(topic, value, key, partition, headers=headers)  # type: ignore[arg-type]
        producer.poll(0)
    producer.flush()
    return time.perf_counter() - started


@contextmanager
def _reader(servers: ServerSettings, topic: str, count: int) -> Iterator[tuple[Connection, BaseProcess]]:
    """A process that is ready to read the topic from its start, waits for a word, and says when it has read
    all."""
    assert servers.kafka is not None
    context = multiprocessing.get_context("spawn")
    plan = _Plan(servers.kafka, topic, servers.partition_count, count)
    ours, theirs = context.Pipe()
    process = context.Process(target=_consume, args=(plan, theirs))
    process.start()
    try:
        yield ours, process
    finally:
        process.join()


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
    consumer.poll(0)
    said.send("ready")
    said.recv()
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
