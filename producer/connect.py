"""Opens what the settings name: the event log and the cache."""

from producer.cache import Cache
from producer.kafka_log import KafkaLog
from producer.log import EventLog
from producer.redis_cache import open_redis
from producer.settings import ServerSettings
from producer.sqlite_log import SqliteLog
from surfacelog.errors import ProtocolError

__all__ = ["open_cache", "open_log"]


async def open_log(settings: ServerSettings) -> EventLog:
    """Kafka when bootstrap servers are set, else the SQLite log in the data directory. Raises ProtocolError
    `misconfigured`, or Unavailable when the servers do not answer in time."""
    if settings.embedded:
        return await SqliteLog.open(settings.data_path, settings.topic, settings.partitions)
    return await KafkaLog.open(settings)


async def open_cache(settings: ServerSettings) -> Cache:
    """The Redis or Valkey server or cluster of the settings, checked. Raises ProtocolError `misconfigured`, or
    CacheUnavailable when it does not answer. The embedded mode starts its own server and does not come here."""
    if settings.redis is None:
        raise ProtocolError("misconfigured", "no cache server is named; set SURFACELOG_REDIS to its URL")
    return await open_redis(settings.redis.reveal())
