"""Kafka's clients get the security settings, and nothing that a user may set weakens durability."""

from confluent_kafka import KafkaError, KafkaException

from producer.kafka_options import client_options, error_of, is_fatal, quiet_options
from producer.secret import Secret
from producer.settings import ServerSettings

SETTINGS = ServerSettings(
    kafka="one:9092,two:9092",
    kafka_properties={"security.protocol": Secret("SASL_SSL"), "sasl.password": Secret("hunter2")},
)


def test_every_client_gets_the_security_settings_in_clear() -> None:
    for options in (client_options(SETTINGS), quiet_options(SETTINGS)):
        assert options["bootstrap.servers"] == "one:9092,two:9092"
        assert options["security.protocol"] == "SASL_SSL"
        assert options["sasl.password"] == "hunter2"


def test_a_client_that_is_not_polled_has_no_log_that_would_pile_up() -> None:
    assert "logger" in client_options(SETTINGS)
    assert "logger" not in quiet_options(SETTINGS)


def test_an_error_is_found_in_its_exception_whatever_that_holds() -> None:
    assert error_of(KafkaException(KafkaError(KafkaError.REQUEST_TIMED_OUT))).name() == "REQUEST_TIMED_OUT"
    assert error_of(KafkaException("words")).str() == "words"


def test_only_what_cannot_go_on_is_fatal() -> None:
    assert is_fatal(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER, "x", True))
    assert not is_fatal(KafkaError(KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER))
