"""The topic on a real Kafka: made as the ledger needs it, refused otherwise."""

import asyncio
import logging

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from producer.kafka_log import KafkaLog
from producer.log import Unavailable
from producer.settings import ServerSettings
from producer.topic import LEDGER_CONFIG, describe_topic, open_topic
from surfacelog.errors import ProtocolError


async def make(kafka: str, name: str, config: dict[str, str], partitions: int = 4) -> None:
    admin = AdminClient({"bootstrap.servers": kafka})
    await asyncio.wrap_future(admin.create_topics([NewTopic(name, partitions, 1, config=config)])[name])


async def test_a_new_topic_has_the_settings_of_the_ledger(
    kafka: str, unique: str, caplog: pytest.LogCaptureFixture
) -> None:
    settings = ServerSettings(kafka=kafka, topic=unique, partitions=5)
    with caplog.at_level(logging.WARNING, "surfacelog.kafka"):
        log = await KafkaLog.open(settings)
    await log.close()
    shape = describe_topic(AdminClient({"bootstrap.servers": kafka}), unique, 10)
    assert shape is not None
    assert shape.partitions == log.partitions == 5
    assert {name: shape.config[name] for name in LEDGER_CONFIG} == LEDGER_CONFIG
    assert shape.topic_id == log.topic_id
    if shape.brokers == 1:
        assert "fine for development" in caplog.text


async def test_processes_that_start_together_find_one_topic(kafka: str, unique: str) -> None:
    settings = ServerSettings(kafka=kafka, topic=unique, partitions=5)
    logs = await asyncio.gather(*(KafkaLog.open(settings) for _ in range(4)))
    assert len({log.topic_id for log in logs}) == 1
    await asyncio.gather(*(log.close() for log in logs))


async def test_a_topic_that_forgets_is_refused_at_start(kafka: str, unique: str) -> None:
    await make(kafka, unique, {**LEDGER_CONFIG, "retention.ms": "3600000"})
    with pytest.raises(ProtocolError, match=r"retention\.ms must be -1, not 3600000") as caught:
        await KafkaLog.open(ServerSettings(kafka=kafka, topic=unique, partitions=4))
    assert caught.value.code == "misconfigured"


async def test_a_topic_with_another_number_of_partitions_is_refused_at_start(kafka: str, unique: str) -> None:
    await make(kafka, unique, dict(LEDGER_CONFIG))
    with pytest.raises(ProtocolError, match="4 partitions"):
        await KafkaLog.open(ServerSettings(kafka=kafka, topic=unique))


async def test_the_limit_of_a_record_comes_from_the_topic(kafka: str, unique: str) -> None:
    await make(kafka, unique, {**LEDGER_CONFIG, "max.message.bytes": "100000"})
    log = await KafkaLog.open(ServerSettings(kafka=kafka, topic=unique, partitions=4))
    assert 90_000 < log.size_bytes_max < 100_000
    body = bytes(range(256)) * 400
    # Uncompressed bytes count: what compresses well is not let through on some days and refused on others.
    with pytest.raises(ProtocolError) as caught:
        await log.produce(0, b"k", [], body, 5000)
    assert caught.value.code == "too-large"
    assert await log.produce(0, b"k", [], body[: log.size_bytes_max - 1], 5000) == 0
    await log.close()


async def test_a_topic_made_anew_under_a_running_log_is_noticed_by_its_consumer(kafka: str, unique: str) -> None:
    settings = ServerSettings(kafka=kafka, topic=unique, partitions=1)
    log = await KafkaLog.open(settings)
    before = log.topic_id
    for _ in range(3):
        await log.produce(0, b"k", [], b"x", 10_000)
    async with log.consumer(unique, "one") as consumer:
        async with asyncio.timeout(20):
            while not (await consumer.fetch(10, 200)).assigned:
                pass
        await consumer.seek(0, 0)
        assert len((await consumer.fetch(10, 5_000)).records[0]) == 3
        admin = AdminClient({"bootstrap.servers": kafka})
        await asyncio.wrap_future(admin.delete_topics([unique])[unique])
        # A deletion is told before it is done everywhere.
        await asyncio.sleep(1)
        again = await KafkaLog.open(settings)
        assert again.topic_id != before
        await again.produce(0, b"k", [], b"y", 10_000)

        async def fetch_for_ever() -> None:
            while True:
                await consumer.fetch(10, 500)

        with pytest.raises(ProtocolError) as caught:
            await asyncio.wait_for(fetch_for_ever(), 20)
        assert caught.value.code == "log-truncated"
        assert log.topic_id == again.topic_id
        await again.close()
    await log.close()


def test_brokers_that_do_not_answer_are_told_after_the_start_timeout(unused_tcp_port: int) -> None:
    settings = ServerSettings(kafka=f"127.0.0.1:{unused_tcp_port}", start_timeout_ms=700)
    with pytest.raises(Unavailable, match="700 ms"):
        open_topic(settings)


def test_replicas_that_the_brokers_cannot_give_end_the_start(kafka: str, unique: str) -> None:
    settings = ServerSettings(kafka=kafka, topic=unique, kafka_replication=32)
    with pytest.raises(ProtocolError) as caught:
        open_topic(settings)
    assert caught.value.code == "misconfigured"
