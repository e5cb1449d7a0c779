"""A ledger of shipped twins in one loop: memory log, memory cache, and a projection of every partition.

Producers share the topic and the cache, as processes on several machines do.
"""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from random import Random
from typing import Any

from msgspec import Raw

from producer.cache import CacheUnavailable
from producer.limits import AppendLimits
from producer.log import Unavailable
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic, Network
from producer.producer import Producer
from projector.partition import PartitionProjection
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.states import States
from projector.trouble import Moved
from sim.loop import simulate
from sim.silent import SilentMetrics
from surfacelog.accept import accept
from surfacelog.events import Draft
from surfacelog.header import Header
from surfacelog.keys import partition_of, record_key
from surfacelog.records import read_record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["Room", "header", "note", "open_room", "simulated", "user"]

T = "acme"
NOW_MS = 1_760_000_000_000


def user(text: str, time: int | None = None) -> Draft:
    """A user's message."""
    data = Raw(
        b'{"id":"%s","role":"user","content":[{"type":"text","text":"%s"}]}' % (text.encode(), text.encode())
    )
    if time is None:
        return Draft("user/message", data, surface_op=Raw(b'"append"'))
    return Draft("user/message", data, time=time, surface_op=Raw(b'"append"'))


def note(text: str = "x") -> Draft:
    """A log-only event that any session takes."""
    return Draft("x/note", Raw(b'{"text":"%s"}' % text.encode()), ignorable=True)


def header(session: str, **fields: object) -> Header:
    """A session's header."""
    return Header(session, NOW_MS, **fields)  # type: ignore[arg-type]


class Room:
    """`folding`: whether the projections move on; `fold_records_max`: how many records a partition folds in each
    `fold_delay_s`."""

    def __init__(self, partitions: int = 2) -> None:
        self.topic = MemoryTopic(partitions)
        self.cache = MemoryCache()
        self.folding = True
        self.fold_delay_s = 0.001
        self.fold_records_max = 1 << 30
        self._ids = itertools.count(1)
        self._states = States(1000, 1 << 28)
        self._producers: list[Producer] = []
        self._task: asyncio.Task[None] | None = None

    def mint(self) -> str:
        """Ids in order."""
        return f"00000000-0000-7000-8000-{next(self._ids):012d}"

    async def producer(self, network: Network | None = None, **limits: int) -> Producer:
        """Another process."""
        made = Producer(
            MemoryLog(self.topic, network),
            self.cache,
            AppendLimits(**limits),
            now_ms=lambda: NOW_MS,
            random=Random(1),
            mint_id=self.mint,
        )
        await made.start()
        self._producers.append(made)
        return made

    async def _fold(self) -> None:
        log = MemoryLog(self.topic)
        settings = ProjectorSettings()
        rooms = [
            PartitionProjection(
                make_site(log, self.cache, number, settings, now_ms=lambda: NOW_MS, nonce=self.mint),
                self._states,
                SilentMetrics(lambda: None),
            )
            for number in range(log.partitions)
        ]
        opened: set[int] = set()
        for turn in itertools.count():
            for number, projection in enumerate(rooms):
                if self.folding:
                    await self._turn(number, projection, opened, looks=turn % 20 == 0)
            await asyncio.sleep(self.fold_delay_s)

    async def _turn(self, number: int, projection: PartitionProjection, opened: set[int], *, looks: bool) -> None:
        try:
            if number not in opened:
                await projection.open()
                opened.add(number)
            if projection.place.next < self.topic.end(number):
                until = min(self.topic.end(number), projection.place.next + self.fold_records_max)
                await projection.advance(until)
            elif looks:
                await projection.tick()
        except (Moved, CacheUnavailable, Unavailable):
            opened.discard(number)

    def records(self, session: str) -> list[tuple[int, object]]:
        """All records of a session, with their offsets."""
        key = record_key(T, session)
        found = self.topic.slice(partition_of(key, self.topic.partitions), 0, 10**9, 1 << 40)
        return [(r.offset, read_record(r.headers, r.value)) for r in found if r.key == key]

    def replay(self, session: str) -> tuple[SessionState, list[Verdict]]:
        """What a fold of the log from its start says: the judge of every test."""
        state = SessionState()
        return state, [accept(state, record, offset) for offset, record in self.records(session)]  # type: ignore[arg-type]

    def lines(self, session: str) -> list[bytes]:
        """The lines of the accepted commits, in order."""
        _, verdicts = self.replay(session)
        kept = [
            record.value  # type: ignore[attr-defined]
            for (_, record), verdict in zip(self.records(session), verdicts, strict=True)
            if verdict.outcome == "accepted" and record.kind == "commit"  # type: ignore[attr-defined]
        ]
        return [line for value in kept for line in value.split(b"\n")]

    async def open(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._fold())

    async def close(self) -> None:
        for producer in self._producers:
            await producer.close()
        assert self._task is not None
        self._task.cancel()
        (ended,) = await asyncio.gather(self._task, return_exceptions=True)
        assert isinstance(ended, asyncio.CancelledError), f"the projection failed: {ended!r}"


Test = Callable[..., Coroutine[Any, Any, None]]


def simulated(seeds: int = 5, partitions: int = 2) -> Callable[[Test], Callable[..., None]]:
    """Runs a test of a room in virtual time, once for each of so many orders of events: nothing depends on how
    fast or busy the machine is, and a minute passes at once. Other parameters are pytest's as ever."""

    def wrap(test: Test) -> Callable[..., None]:
        def run(**given: Any) -> None:
            async def main(loop: object) -> None:
                async with open_room(partitions) as room:
                    await test(room, **given)

            for seed in range(seeds):
                simulate(main, seed, steps_max=1_000_000)

        signature = inspect.signature(test)
        others = [parameter for name, parameter in signature.parameters.items() if name != "room"]
        run.__signature__ = signature.replace(parameters=others)  # type: ignore[attr-defined]
        run.__name__, run.__doc__ = test.__name__, test.__doc__
        return run

    return wrap


@asynccontextmanager
async def open_room(partitions: int = 2, before: Callable[[Room], None] | None = None) -> AsyncIterator[Room]:
    """A ledger whose projection runs."""
    room = Room(partitions)
    if before is not None:
        before(room)
    await room.open()
    try:
        yield room
    finally:
        await room.close()
