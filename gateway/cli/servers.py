"""Which Kafka and Redis a worker's or an operator's command talks to."""

import os

from producer.secret import Secret
from producer.settings import ServerSettings, read_settings

__all__ = ["named_servers"]


def named_servers(kafka: str | None, redis: str | None) -> ServerSettings:
    """The servers that the command line names, else the environment. Raises `misconfigured`."""
    named = {"kafka": kafka, "redis": None if redis is None else Secret(redis)}
    return read_settings(ServerSettings, os.environ, named)
