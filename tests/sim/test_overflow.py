"""A second copy that comes after the windows overflowed is not taken for the first: one scripted run."""

import asyncio
from random import Random

import pytest

import surfacelog.state as state
from producer.limits import AppendLimits
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic, ProduceFault
from producer.producer import Producer
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from sim.asks import message
from sim.history import replay
from sim.loop import SimLoop, simulate
from sim.silent import SilentMetrics
from surfacelog.events import encode_line
from surfacelog.header import Header
from surfacelog.records import Record

KEY = b"t/s"
RECENT_MAX = 12


class Twice:
    """A network on which every commit lands twice, the second time a moment later."""

    def produce(self, partition: int, key: bytes, headers: object, value: bytes) -> ProduceFault:
        return ProduceFault(copies=2 if b"only-once" in value else 1, again_ms=5)

    def call(self, name: str) -> float:
        return 0


async def _append_beside_zombies(loop: SimLoop) -> list[int]:
    topic = MemoryTopic(1)
    cache = MemoryCache(hears=lambda channel, payload: False)
    ids = iter(range(1000))

    def mint() -> str:
        return f"id-{next(ids):04d}"

    def refused() -> None:
        line = encode_line(message("far"), 100, 0)
        record = Record("commit", mint(), line, seq=100)
        topic.append(0, KEY, record.headers(), record.value, 0)

    def landed() -> None:
        """The windows are full right behind the commit, before anybody has looked at it."""
        if topic.end(0) == RECENT_MAX:
            refused()

    settings = ProjectorSettings(member="w")
    log = MemoryLog(topic)
    worker = Worker(
        log,
        cache,
        settings,
        SilentMetrics(lambda: None),
        site=lambda p: make_site(log, cache, p, settings, now_ms=lambda: 0, nonce=mint),
    )
    running = asyncio.create_task(worker.run())
    producer = Producer(
        MemoryLog(topic, Twice()),
        cache,
        AppendLimits(verdict_poll_ms=30),
        now_ms=lambda: 0,
        mint_id=mint,
        random=Random(0),
    )
    await producer.create("t", Header("s", 0))
    for _ in range(RECENT_MAX - 2):
        refused()
    await asyncio.sleep(1)
    append = asyncio.create_task(producer.append("t", "s", [message("only-once")]))
    while topic.end(0) < RECENT_MAX:
        await asyncio.sleep(0)
    landed()
    await append
    worker.stop()
    await running
    await producer.close()
    return replay({0: topic.slice(0, 0, 1000, 1 << 30)})[KEY].marks["only-once"]


@pytest.mark.parametrize("seed", range(5))
def test_a_late_copy_behind_an_overflow_of_the_windows_doubles_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "RECENT_MAX", RECENT_MAX)
    assert len(simulate(_append_beside_zombies, seed)) == 1
