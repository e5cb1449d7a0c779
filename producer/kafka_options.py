"""What every Kafka client of ours is configured with, and how its errors are told apart."""

import logging
from typing import Any

from confluent_kafka import KafkaError, KafkaException

from producer.settings import ServerSettings

__all__ = ["client_options", "error_of", "is_fatal", "quiet_options"]

logger = logging.getLogger("surfacelog.kafka")


def client_options(settings: ServerSettings) -> dict[str, Any]:
    """For clients that are polled all the time: their log goes to Python's."""
    assert settings.kafka is not None
    return {
        "bootstrap.servers": settings.kafka,
        "client.id": "surfacelog",
        # Small requests are sent as they come; waiting for more is linger's business.
        "socket.nagle.disable": True,
        # A broker that holds connections and says nothing (frozen, cut off) is given up after this; the default of
        # a minute is longer than any of our deadlines, and than the election of another leader.
        "socket.timeout.ms": 6_000,
        "socket.connection.setup.timeout.ms": 6_000,
        "reconnect.backoff.ms": 50,
        # A broker that comes back is found within this; the default of 10 s makes an outage longer than it was.
        "reconnect.backoff.max.ms": 1_000,
        "logger": logger,
        **{name: secret.reveal() for name, secret in settings.kafka_properties.items()},
    }


def quiet_options(settings: ServerSettings) -> dict[str, Any]:
    """For clients that are polled only while somebody waits for them: every error is the answer to a call, and
    a log that nobody polls would pile up."""
    options = client_options(settings)
    del options["logger"]
    return {**options, "log_level": 0}


def error_of(error: KafkaException) -> KafkaError:
    """The KafkaError inside an exception."""
    found = error.args[0]
    return found if isinstance(found, KafkaError) else KafkaError(KafkaError.UNKNOWN, str(error))


def is_fatal(error: KafkaError) -> bool:
    """Whether the client that met it can never go on."""
    return error.fatal() or error.name() == "_FATAL"
