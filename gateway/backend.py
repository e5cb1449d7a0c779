"""What the settings name behind a gateway: Kafka and Redis, or the embedded ledger."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

from prometheus_client import CollectorRegistry

from gateway.embedded import Embedded, embedded
from producer.connect import open_cache, open_log
from producer.limits import AppendLimits
from producer.producer import Producer
from producer.settings import ServerSettings
from surfacelog.errors import ProtocolError

__all__ = ["backend"]


@asynccontextmanager
async def backend(servers: ServerSettings, limits: AppendLimits | None = None) -> AsyncIterator[Embedded]:
    """Log, cache and a started producer, closed in order at the end. Raises ProtocolError `misconfigured`,
    Unavailable or CacheUnavailable when they cannot be opened."""
    if servers.embedded:
        if servers.redis is not None:
            raise ProtocolError(
                "misconfigured", "Redis alone serves nothing; set SURFACELOG_KAFKA too, or neither"
            )
        async with embedded(servers.data_path, limits) as parts:
            yield parts
        return
    async with AsyncExitStack() as stack:
        cache = await open_cache(servers)
        stack.push_async_callback(cache.close)
        log = await open_log(servers)
        stack.push_async_callback(log.close)
        producer = Producer(log, cache, limits)
        await producer.start()
        stack.push_async_callback(producer.close)
        yield Embedded(log, cache, producer, CollectorRegistry())
