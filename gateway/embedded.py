"""The whole ledger in one process: SQLite log, Valkey child, projector and gateway, over one data directory.

The same code as on Kafka and Redis; only what stands behind the log and who starts the cache differ.
"""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import msgspec
from prometheus_client import CollectorRegistry

from deploy.child import Prerequisite, ServerFailed
from deploy.valkey import ValkeyServer
from gateway.keeper import Keeper
from producer.cache import Cache
from producer.limits import AppendLimits
from producer.log import EventLog
from producer.producer import Producer
from producer.redis_cache import RedisCache
from producer.sqlite_log import SqliteLog
from projector.metrics import ProjectorMetrics
from projector.settings import ProjectorSettings
from projector.worker import Worker
from surfacelog.errors import ProtocolError

__all__ = ["Embedded", "embedded"]


class Embedded(msgspec.Struct, frozen=True):
    """What a gateway stands on. `registry`: figures kept so far, to which the gateway adds its own. `keeper`: of
    the projector, when it runs in this process."""

    log: EventLog
    cache: Cache
    producer: Producer
    registry: CollectorRegistry
    keeper: Keeper | None = None


@asynccontextmanager
async def embedded(
    folder: Path, limits: AppendLimits | None = None, projection: ProjectorSettings | None = None
) -> AsyncIterator[Embedded]:
    """Runs it over the data directory `folder`, made if need be; ends everything in order. Raises `misconfigured`
    when another process has the directory, or when there is no Valkey for this system."""
    registry = CollectorRegistry()
    async with AsyncExitStack() as stack:
        log = await SqliteLog.open(folder)
        stack.push_async_callback(log.close)
        server = _start_valkey(folder / "valkey")
        stack.callback(server.stop)
        cache = RedisCache(server.url)
        stack.push_async_callback(cache.close)
        await cache.check()
        settings, metrics = projection or ProjectorSettings(member="embedded"), ProjectorMetrics(registry)
        keeper = Keeper(lambda: Worker(log, cache, settings, metrics))
        keeper.start()
        stack.push_async_callback(keeper.stop)
        producer = Producer(log, cache, limits)
        await producer.start()
        stack.push_async_callback(producer.close)
        yield Embedded(log, cache, producer, registry, keeper)


def _start_valkey(folder: Path) -> ValkeyServer:
    try:
        # On the loop's own thread: the child ends with the thread that started it.
        return ValkeyServer.start(folder)
    except (Prerequisite, ServerFailed) as error:
        raise ProtocolError("misconfigured", f"the embedded cache did not start: {error}") from None
