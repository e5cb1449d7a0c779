"""Single runs written by hand, each for a fault that the seeds found or nearly never reach."""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from random import Random

import pytest

import surfacelog.state as state
from producer.append import Appended
from producer.limits import AppendLimits
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic, ProduceFault
from producer.producer import Producer
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from sim.asks import message
from sim.history import History, replay
from sim.loop import SimLoop, simulate
from sim.silent import SilentMetrics
from surfacelog.errors import LedgerError
from surfacelog.events import encode_line
from surfacelog.header import Header
from surfacelog.records import Record

KEY = b"t/s"
RECENT_MAX = 12


class Fates:
    """A network that does to a commit what is written for the mark in it."""

    def __init__(self, fates: dict[bytes, ProduceFault]) -> None:
        self._fates = fates

    def produce(self, partition: int, key: bytes, headers: object, value: bytes) -> ProduceFault:
        return next((fate for mark, fate in self._fates.items() if mark in value), ProduceFault())

    def call(self, name: str) -> float:
        return 0


class Ledger:
    """One session `t/s` with one producer and one worker."""

    def __init__(self, fates: dict[bytes, ProduceFault], *, deaf: bool) -> None:
        self.topic = MemoryTopic(1)
        self.cache = MemoryCache(hears=lambda channel, payload: not deaf)
        self._ids = iter(range(1000))
        settings = ProjectorSettings(member="w")
        log = MemoryLog(self.topic)
        self.worker = Worker(
            log,
            self.cache,
            settings,
            SilentMetrics(lambda: None),
            site=lambda p: make_site(log, self.cache, p, settings, now_ms=lambda: 0, nonce=self.mint),
        )
        self.producer = Producer(
            MemoryLog(self.topic, Fates(fates)),
            self.cache,
            AppendLimits(verdict_poll_ms=30, append_timeout_ms=3_000),
            now_ms=lambda: 0,
            mint_id=self.mint,
            random=Random(0),
        )

    def mint(self) -> str:
        return f"id-{next(self._ids):04d}"

    def refuse_one(self) -> None:
        """A record of somebody else that never fits."""
        line = encode_line(message("far"), 100, 0)
        record = Record("commit", self.mint(), line, seq=100)
        self.topic.append(0, KEY, record.headers(), record.value, 0)

    async def append(self, mark: str) -> Appended:
        return await self.producer.append("t", "s", [message(mark)])

    @property
    def history(self) -> History:
        return replay({0: self.topic.slice(0, 0, 1000, 1 << 30)})[KEY]


@asynccontextmanager
async def opened(fates: dict[bytes, ProduceFault], *, deaf: bool = False) -> AsyncIterator[Ledger]:
    ledger = Ledger(fates, deaf=deaf)
    running = asyncio.create_task(ledger.worker.run())
    await ledger.producer.start()
    await ledger.producer.create("t", Header("s", 0))
    try:
        yield ledger
    finally:
        ledger.worker.stop()
        await running
        await ledger.producer.close()


@pytest.mark.parametrize("seed", range(5))
def test_a_late_copy_behind_an_overflow_of_the_windows_doubles_nothing(seed: int, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(state, "RECENT_MAX", RECENT_MAX)

    async def main(loop: SimLoop) -> list[int]:
        async with opened({b"twice": ProduceFault(copies=2, again_ms=5)}, deaf=True) as ledger:
            for _ in range(RECENT_MAX - 2):
                ledger.refuse_one()
            await asyncio.sleep(1)
            append = asyncio.create_task(ledger.append("twice"))
            while ledger.topic.end(0) < RECENT_MAX:
                await asyncio.sleep(0)
            # The windows are full right behind the commit, before anybody has looked at it.
            ledger.refuse_one()
            await append
            return ledger.history.marks["twice"]

    assert len(simulate(main, seed)) == 1


@pytest.mark.parametrize("seed", range(5))
def test_a_lost_record_holds_up_nobody_once_those_behind_it_are_refused(seed: int):
    async def main(loop: SimLoop) -> Sequence[object]:
        lost = ProduceFault("unknown", copies=0, answer_ms=1_500)
        async with opened({b"lost": lost}) as ledger:
            await ledger.append("before")
            first = [asyncio.create_task(ledger.append(mark)) for mark in ("lost", "next", "third")]
            told = await asyncio.gather(*first, return_exceptions=True)
            await ledger.append("after")
            assert "after" in ledger.history.marks
            assert "lost" not in ledger.history.marks
            return [error.code for error in told if isinstance(error, LedgerError)]

    assert "unknown-outcome" in simulate(main, seed)


@pytest.mark.parametrize("seed", range(5))
def test_an_open_that_nobody_answered_can_be_tried_again_while_the_log_is_empty(seed: int):
    async def main(loop: SimLoop) -> int:
        fates = {b"createdAt": ProduceFault("unknown", copies=0)}
        ledger = Ledger(fates, deaf=False)
        running = asyncio.create_task(ledger.worker.run())
        await ledger.producer.start()
        with pytest.raises(LedgerError, match="unknown-outcome"):
            await ledger.producer.create("t", Header("s", 0))
        fates.clear()
        await ledger.producer.create("t", Header("s", 0))
        ledger.worker.stop()
        await running
        await ledger.producer.close()
        return ledger.history.state.next_seq

    assert simulate(main, seed) == 0
