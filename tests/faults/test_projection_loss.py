"""A cache that loses all, or its newest seconds, under load: it heals from the log, and nothing told is lost."""

import asyncio
import gc
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from deploy.valkey import ValkeyServer
from deploy.valkey_cluster import ValkeyCluster
from producer.cache import Cache, CacheUnavailable
from producer.memory_log import MemoryLog, MemoryTopic
from producer.producer import Producer
from producer.redis_cache import RedisCache, open_redis
from projector.refold import Refold
from projector.scan import session_records
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from surfacelog.errors import LedgerError
from surfacelog.header import Header
from surfacelog.keys import SLOTS, partition_of, record_key, slot_of
from tests.logwriter import user
from tests.projection_reader import partition_keys, view_of
from tests.servers import redis_cluster_url

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


async def fail_over(cluster: ValkeyCluster, load: Load) -> None:
    """The master of the first partition is cut off from its replica, goes on for a while, and dies."""
    tag = make_site(load.log, load.cache, 0, ProjectorSettings()).keys.tag
    number = slot_of(tag) * cluster.masters // SLOTS
    master, replica = cluster.servers[number], cluster.servers[cluster.masters + number]
    with master.client() as client, replica.client() as other:
        client.execute_command("ACL", "SETUSER", "default", "-psync", "-sync")
        client.client_kill_filter(_type="replica")
        before = other.info("replication")["master_repl_offset"]
        await load.grows(400)
        after = other.info("replication")
        assert (after["master_repl_offset"], after["master_link_status"]) == (before, "down")
        master.kill()
        async with asyncio.timeout(30):
            while other.info("replication")["role"] != "master":
                await asyncio.sleep(0.1)


async def go_through(log: MemoryLog, cache: Cache, trouble: Callable[[Load], Awaitable[None]]) -> float:
    """Appends and projects while there is trouble, and checks what came of it. Returns the rebuilds it took."""
    worker = Worker(log, cache, ProjectorSettings(fetch_wait_ms=5, idle_ms=100))
    projecting = asyncio.create_task(worker.run())
    load = Load(log, cache)
    loading = asyncio.create_task(load.run())
    await load.grows(100)
    await trouble(load)
    load.stopping = True
    await loading
    async with asyncio.timeout(20):
        while any(worker.projections[number].place.next < log.end(number) for number in range(4)):
            await asyncio.sleep(0.01)
    worker.stop()
    await projecting
    assert load.refused <= MEANWHILE, load.refused
    assert worker.halted == set()
    for key, told in load.acknowledged.items():
        await check(log, cache, key, told)
    return worker.metrics.registry.get_sample_value("surfacelog_projector_rebuilds_total") or 0


async def test_a_failover_that_lost_a_suffix_heals_from_the_log(tmp_path: Path) -> None:
    with redis_cluster_url(tmp_path / "cluster", replicas=1) as cluster:
        cache = await open_redis(cluster.url)

        async def trouble(load: Load) -> None:
            await fail_over(cluster, load)
            # Each session goes on, those of the lost master as well, and fast: verdicts are heard again.
            wanted = {key: len(told) + 150 for key, told in load.acknowledged.items()}
            async with asyncio.timeout(30):
                while any(len(load.acknowledged[key]) < count for key, count in wanted.items()):
                    await asyncio.sleep(0.01)

        assert await go_through(MemoryLog(MemoryTopic(partitions=4)), cache, trouble), "nothing was lost"
        await cache.close()
    # What the cluster client leaves behind is told here, and not in the midst of something else.
    gc.collect()


@pytest.mark.parametrize("trouble", [flush_all, lose_the_newest_seconds, pause_for_a_while])
async def test_nothing_acknowledged_is_lost_and_no_session_starts_again(
    redis_server: ValkeyServer, cache: Cache, trouble: Callable[[ValkeyServer, Load], Awaitable[None]]
) -> None:
    log = MemoryLog(MemoryTopic(partitions=4))
    rebuilds = await go_through(log, cache, lambda load: trouble(redis_server, load))
    assert bool(rebuilds) == (trouble is not pause_for_a_while), "the trouble did not happen"


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
