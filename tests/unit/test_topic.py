"""A topic with other settings than the ledger needs is refused, by name and with the wanted value."""

import msgspec
import pytest

from producer.topic import LEDGER_CONFIG, TopicShape, check_topic
from surfacelog.errors import ProtocolError

SINGLE = TopicShape(
    name="t",
    topic_id="id",
    partitions=8,
    replication=1,
    brokers=1,
    config={**LEDGER_CONFIG, "min.insync.replicas": "1", "max.message.bytes": str(8 << 20)},
)
CLUSTER = msgspec.structs.replace(
    SINGLE, replication=3, brokers=3, config={**SINGLE.config, "min.insync.replicas": "2"}
)


def changed(shape: TopicShape, name: str, value: str) -> TopicShape:
    return msgspec.structs.replace(shape, config={**shape.config, name: value})


def refusal(shape: TopicShape, partitions: int = 8) -> str:
    with pytest.raises(ProtocolError) as caught:
        check_topic(shape, partitions)
    assert caught.value.code == "misconfigured"
    return caught.value.message


def test_a_single_broker_and_a_cluster_as_we_make_them_are_fine() -> None:
    check_topic(SINGLE, 8)
    check_topic(CLUSTER, 8)


@pytest.mark.parametrize(
    ("name", "value", "wanted"),
    [
        ("retention.ms", "604800000", "-1"),
        ("retention.bytes", "1073741824", "-1"),
        ("cleanup.policy", "compact", "delete"),
        ("cleanup.policy", "compact,delete", "delete"),
        ("unclean.leader.election.enable", "true", "false"),
    ],
)
@pytest.mark.parametrize("shape", [SINGLE, CLUSTER])
def test_a_setting_that_loses_history_is_refused(shape: TopicShape, name: str, value: str, wanted: str) -> None:
    assert f"{name} must be {wanted}, not {value}" in refusal(changed(shape, name, value))


def test_three_brokers_need_three_replicas_of_which_two_are_in_sync() -> None:
    assert "replication.factor must be at least 3, not 2" in refusal(
        msgspec.structs.replace(CLUSTER, replication=2)
    )
    assert "min.insync.replicas must be at least 2, not 1" in refusal(changed(CLUSTER, "min.insync.replicas", "1"))


def test_more_replicas_in_sync_than_there_are_could_never_be_written_to() -> None:
    assert "min.insync.replicas must be at most 1" in refusal(changed(SINGLE, "min.insync.replicas", "2"))


def test_another_number_of_partitions_is_refused_with_the_variable_to_set() -> None:
    said = refusal(SINGLE, partitions=64)
    assert "8 partitions" in said
    assert "SURFACELOG_PARTITIONS" in said


def test_everything_that_is_wrong_is_told_at_once() -> None:
    wrong = changed(changed(SINGLE, "retention.ms", "1"), "cleanup.policy", "compact")
    said = refusal(wrong, partitions=9)
    assert all(name in said for name in ("retention.ms", "cleanup.policy", "SURFACELOG_PARTITIONS"))


def test_the_largest_record_leaves_room_for_what_kafka_adds() -> None:
    assert (8 << 20) - 4096 < SINGLE.size_bytes_max < 8 << 20
