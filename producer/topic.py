"""The topic: made with the settings that the ledger needs, and refused at start when it has others."""

import logging
import time
from collections.abc import Mapping

import msgspec
from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import ConfigResource
from confluent_kafka.cimpl import NewTopic

from producer.kafka_options import error_of, quiet_options
from producer.log import Unavailable
from producer.settings import ServerSettings
from surfacelog.errors import ProtocolError

__all__ = ["LEDGER_CONFIG", "RECORD_BYTES_MAX", "TopicShape", "check_topic", "describe_topic", "open_topic"]

logger = logging.getLogger("surfacelog.kafka")

# 8 MiB: room for a commit of many events or a large tool result, and still small beside a broker's 100 MiB for a
# request and a client's fetch buffers. Larger things belong into a store of their own.
RECORD_BYTES_MAX = 8 << 20
# What Kafka's limit counts besides key, value and headers: 61 bytes of batch header, a few varints.
BATCH_OVERHEAD_BYTES = 1024
# History is kept for ever, every record of it, and never cut by a replica that missed some.
LEDGER_CONFIG: Mapping[str, str] = {
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
    "unclean.leader.election.enable": "false",
}
REPLICAS = 3
IN_SYNC = 2


class TopicShape(msgspec.Struct, frozen=True):
    """A topic as the brokers describe it. `replication`: the fewest replicas of any partition. `config`: every
    topic setting with its effective value."""

    name: str
    topic_id: str
    partitions: int
    replication: int
    brokers: int
    config: dict[str, str]

    @property
    def size_bytes_max(self) -> int:
        """The largest record that surely fits, as `check_size` counts it."""
        return int(self.config["max.message.bytes"]) - BATCH_OVERHEAD_BYTES


def check_topic(shape: TopicShape, partitions: int, wanted: Mapping[str, str] = LEDGER_CONFIG) -> None:
    """Raises ProtocolError `misconfigured` with every setting that must change and the value that it must have."""
    wrong = []
    if shape.partitions != partitions:
        wrong.append(
            f"it has {shape.partitions} partitions and SURFACELOG_PARTITIONS says {partitions} "
            "(the number is fixed when a topic is made; set the variable to what the topic has)"
        )
    for name, value in wanted.items():
        if shape.config.get(name) != value:
            wrong.append(f"{name} must be {value}, not {shape.config.get(name)}")
    if int(shape.config["max.message.bytes"]) <= 2 * BATCH_OVERHEAD_BYTES:
        wrong.append(f"max.message.bytes should be {RECORD_BYTES_MAX}")
    in_sync = int(shape.config["min.insync.replicas"])
    if shape.brokers >= REPLICAS:
        if shape.replication < REPLICAS:
            wrong.append(f"replication.factor must be at least {REPLICAS}, not {shape.replication}")
        if in_sync < IN_SYNC:
            wrong.append(f"min.insync.replicas must be at least {IN_SYNC}, not {in_sync}")
    elif in_sync > shape.replication:
        wrong.append(f"min.insync.replicas must be at most {shape.replication}, not {in_sync}")
    if wrong:
        raise ProtocolError("misconfigured", f"topic {shape.name}: " + "; ".join(wrong))


def open_topic(settings: ServerSettings) -> TopicShape:
    """The ledger's topic, made if it is not there, checked in either case. Blocks until the brokers answer and all
    partitions have a leader. Raises ProtocolError `misconfigured`, or Unavailable after `start_timeout_ms`."""
    deadline = time.monotonic() + settings.start_timeout_ms / 1000
    admin = AdminClient(quiet_options(settings))
    while True:
        try:
            shape = describe_topic(admin, settings.topic, _left(deadline))
            if shape is None:
                _make(admin, settings, _left(deadline))
                shape = describe_topic(admin, settings.topic, _left(deadline))
        except KafkaException as error:
            _refuse(error_of(error))
            shape = None
        if shape is not None:
            break
        if time.monotonic() > deadline:
            raise Unavailable(f"Kafka at {settings.kafka} did not answer within {settings.start_timeout_ms} ms")
        time.sleep(0.05)
    check_topic(shape, settings.partition_count)
    if shape.brokers < REPLICAS:
        logger.warning(
            "Kafka has %d broker(s): fine for development, but a lost disk loses the history; run three or more",
            shape.brokers,
        )
    return shape


def describe_topic(admin: AdminClient, name: str, timeout_s: float) -> TopicShape | None:
    """The topic's shape, or None when there is none or a partition has no leader yet; raises KafkaException."""
    try:
        described = admin.describe_topics(TopicCollection([name]), request_timeout=timeout_s)[name].result()
    except KafkaException as error:
        if error_of(error).name() in ("UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC"):
            return None
        raise
    if any(partition.leader is None or partition.leader.id < 0 for partition in described.partitions):
        return None
    resource = ConfigResource(ConfigResource.Type.TOPIC, name)
    entries = admin.describe_configs([resource], request_timeout=timeout_s)[resource].result()
    brokers = admin.describe_cluster(request_timeout=timeout_s).result().nodes
    return TopicShape(
        name=name,
        topic_id=str(described.topic_id),
        partitions=len(described.partitions),
        replication=min(len(partition.replicas) for partition in described.partitions),
        brokers=len(brokers),
        config={key: entry.value for key, entry in entries.items() if entry.value is not None},
    )


def _make(admin: AdminClient, settings: ServerSettings, timeout_s: float) -> None:
    brokers = len(admin.describe_cluster(request_timeout=timeout_s).result().nodes)
    replication = settings.kafka_replication or min(REPLICAS, brokers)
    config = {
        **LEDGER_CONFIG,
        "min.insync.replicas": str(IN_SYNC if replication >= REPLICAS else 1),
        "max.message.bytes": str(RECORD_BYTES_MAX),
    }
    topic = NewTopic(settings.topic, settings.partition_count, replication, config=config)
    try:
        admin.create_topics([topic], request_timeout=timeout_s)[settings.topic].result()
    except KafkaException as error:
        # Another process was faster; what it made is checked like any other.
        if error_of(error).name() != "TOPIC_ALREADY_EXISTS":
            raise
    else:
        logger.info("made topic %s: %d partitions, %d replicas", settings.topic, topic.num_partitions, replication)


_TRANSIENT = frozenset(
    {
        "_TRANSPORT",
        "_ALL_BROKERS_DOWN",
        "_TIMED_OUT",
        "_RESOLVE",
        "REQUEST_TIMED_OUT",
        "UNKNOWN_TOPIC_OR_PART",
        "LEADER_NOT_AVAILABLE",
        "NOT_CONTROLLER",
        "BROKER_NOT_AVAILABLE",
        "COORDINATOR_NOT_AVAILABLE",
    }
)


def _refuse(error: KafkaError) -> None:
    """Returns when waiting may help."""
    if error.name() not in _TRANSIENT and not error.retriable():
        raise ProtocolError("misconfigured", f"Kafka refuses to start with these settings: {error.str()}")


def _left(deadline: float) -> float:
    return max(0.5, deadline - time.monotonic())
