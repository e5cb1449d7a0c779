"""A cache that loses all, or its newest seconds, under load: it heals from the log, and nothing told is lost."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from deploy.valkey import ValkeyServer
from producer.cache import Cache, CacheUnavailable
from producer.memory_log import MemoryLog, MemoryTopic
from producer.producer import Producer
from producer.redis_cache import RedisCache
from projector.refold import Refold
from projector.scan import session_records
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from surfacelog.errors import LedgerError
from surfacelog.header import Header
from surfacelog.keys import partition_of, record_key
from tests.logwriter import user
from tests.projection_reader import partition_keys, view_of

SESSIONS = 8
# What a caller may be told while the cache is not what it was.
MEANWHILE = {"rebuilding", "unavailable", "unknown-outcome", "overloaded", "locked"}


class Load:
    """Appends to all sessions until `stop`; keeps what was acknowledged and every refusal."""

    def __init__(self, log: MemoryLog, cache: Cache) -> None:
        self.log = log
        self.cache = cache
        self.producer = Producer(log, cache)
        self.acknowledged: dict[bytes, dict[int, str]] = {}
        self.refused: set[str] = set()
        self.stopping = False

    async def run(self) -> None:
        await self.producer.start()
        for number in range(SESSIONS):
            await self.producer.create("t", Header(f"s{number}", 1))
        await asyncio.gather(*(self._append(f"s{number}") for number in range(SESSIONS)))
        await self.producer.close()

    async def _append(self, session: str) -> None:
        told = self.acknowledged.setdefault(record_key("t", session), {})
        number = 0
        while not self.stopping:
            number += 1
            text = f"{session} {number}"
            try:
                appended = await self.producer.append("t", session, [user(text)], timeout_ms=2000)
                assert appended.seq not in told
                told[appended.seq] = text
            except LedgerError as error:
                self.refused.add(error.code)
            except CacheUnavailable:
                self.refused.add("unavailable")
            await asyncio.sleep(0.001)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def grows(self, by: int) -> None:
        """Waits until so many more appends were acknowledged."""
        wanted = self.count + by
        async with asyncio.timeout(60):
            while self.count < wanted:
                await asyncio.sleep(0.01)


@pytest.fixture
async def cache(redis_server: ValkeyServer) -> AsyncIterator[Cache]:
    client = RedisCache(redis_server.url, timeout_ms=1000)
    yield client
    await client.close()


async def flush_all(server: ValkeyServer, load: Load) -> None:
    for _ in range(3):
        with server.client() as client:
            client.flushall()
        await load.grows(100)


async def lose_the_newest_seconds(server: ValkeyServer, load: Load) -> None:
    with server.client() as client:
        client.save()
    await load.grows(200)
    server.kill()
    server.restart()
    await load.grows(100)


async def pause_for_a_while(server: ValkeyServer, load: Load) -> None:
    server.pause()
    await asyncio.sleep(2.5)
    server.resume()
    await load.grows(100)


@pytest.mark.parametrize("trouble", [flush_all, lose_the_newest_seconds, pause_for_a_while])
async def test_nothing_acknowledged_is_lost_and_no_session_starts_again(
    redis_server: ValkeyServer, cache: Cache, trouble: Callable[[ValkeyServer, Load], Awaitable[None]]
) -> None:
    log = MemoryLog(MemoryTopic(partitions=4))
    worker = Worker(log, cache, ProjectorSettings(fetch_wait_ms=5, idle_ms=100))
    projecting = asyncio.create_task(worker.run())
    load = Load(log, cache)
    loading = asyncio.create_task(load.run())
    await load.grows(100)
    await trouble(redis_server, load)
    load.stopping = True
    await loading
    async with asyncio.timeout(20):
        while any(worker.projections[number].place.next < log.end(number) for number in range(4)):
            await asyncio.sleep(0.01)
    worker.stop()
    await projecting
    assert load.refused <= MEANWHILE, load.refused
    assert worker.halted == set()
    lost = trouble is not pause_for_a_while
    rebuilds = worker.metrics.registry.get_sample_value("surfacelog_projector_rebuilds_total")
    assert bool(rebuilds) == lost, "the trouble did not happen"
    for key, told in load.acknowledged.items():
        await check(log, cache, key, told)


async def check(log: MemoryLog, cache: Cache, key: bytes, told: dict[int, str]) -> None:
    """The session in the cache is the fold of the log, and holds every acknowledged event at its seq."""
    partition = partition_of(key, log.partitions)
    site = make_site(log, cache, partition, ProjectorSettings())
    refold = Refold(site.bounds)
    async for record in session_records(site, key, 0, log.end(partition)):
        refold.take(record)
    view = await view_of(cache, log, key)
    assert view.state is not None
    assert view.state.chain == refold.state.chain
    assert view.state.surface.nodes == refold.state.surface.nodes
    own = partition_keys(log, key).session(key)
    messages = await cache.call("LRANGE", own.messages + view.meta[b"mk"], 0, -1)
    assert messages == refold.messages
    for seq, text in told.items():
        assert text.encode() in messages[view.state.surface.nodes.index(seq)]
