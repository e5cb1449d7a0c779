"""What a gateway serves from: the log, the cache, and what reads and writes through them."""

from collections.abc import Callable

import msgspec

from gateway.auth import Doorkeeper
from gateway.bodies import BodyReader
from gateway.keeper import Keeper
from gateway.metrics import GatewayMetrics
from gateway.news import News
from gateway.pages import Pages
from gateway.reads import Reads
from gateway.settings import GatewaySettings, doorkeeper_of
from gateway.stream import Streams
from gateway.view import Viewer
from producer.cache import Cache
from producer.freshness import LogEnds
from producer.log import EventLog
from producer.producer import Producer

__all__ = ["Services", "services_for"]

ENDS_TIMEOUT_MS = 5000


class Services(msgspec.Struct, frozen=True):
    """Handed to every handler. Log, cache and producer belong to whoever opened them, and so does the `keeper` of
    the projector in this process, if there is one."""

    settings: GatewaySettings
    doorkeeper: Doorkeeper
    log: EventLog
    cache: Cache
    producer: Producer
    bodies: BodyReader
    reads: Reads
    pages: Pages
    news: News
    streams: Streams
    metrics: GatewayMetrics
    now_ms: Callable[[], int]
    keeper: Keeper | None = None

    async def close(self) -> None:
        """Ends what waits for news; live tails end with it."""
        self.streams.close()
        self.bodies.close()
        await self.news.close()


def services_for(
    settings: GatewaySettings,
    log: EventLog,
    cache: Cache,
    producer: Producer,
    *,
    now_ms: Callable[[], int],
    metrics: GatewayMetrics | None = None,
    keeper: Keeper | None = None,
) -> Services:
    """The services of one gateway; raises `misconfigured`."""
    news = News(cache, lambda partition: viewer.channel(partition))
    viewer = Viewer(cache, log.topic, log.partitions, LogEnds(log, ENDS_TIMEOUT_MS), news)
    pages = Pages(viewer, log, settings.page_bytes_max)
    return Services(
        settings=settings,
        doorkeeper=doorkeeper_of(settings),
        log=log,
        cache=cache,
        producer=producer,
        bodies=BodyReader(),
        reads=Reads(viewer),
        pages=pages,
        news=news,
        streams=Streams(pages, news, settings.streams_max, settings.stream_heartbeat_ms),
        metrics=metrics or GatewayMetrics(),
        now_ms=now_ms,
        keeper=keeper,
    )
