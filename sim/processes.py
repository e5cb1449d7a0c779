"""The processes of a simulated ledger: producers, workers and gateways, each of the real code on its own wires.

A process may be killed, paused or cut off at any await, and started again as a new one.
"""

import asyncio
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any, TypeVar

import msgspec

from gateway.news import News
from gateway.reads import Reads
from gateway.view import Viewer
from producer.freshness import LogEnds
from producer.producer import Producer
from projector.site import Site, make_site
from projector.worker import Worker
from sim.silent import SilentMetrics
from sim.world import World

__all__ = ["GatewayProcess", "Gone", "Process", "ProducerProcess", "WorkerProcess"]

T = TypeVar("T")


class Gone(Exception):
    """The process died while it was asked; nobody knows how far it came."""


class Process:
    """A lane with wires. `kind` and `number` name the place that a restarted process takes again."""

    kind = "process"

    def __init__(self, world: World, number: int, generation: int) -> None:
        self.world = world
        self.number = number
        self.generation = generation
        self.name = f"{self.kind}{number}" + "'" * generation
        self.lane = world.loop.lane(self.name)
        self.log = world.wire_log()
        self.cache = world.wire_cache()
        self._asked: set[asyncio.Future[Any]] = set()
        self.begin()

    def begin(self) -> None:
        """Starts what the process does by itself."""

    async def ask(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """What a request to this process answers; raises Gone when it dies meanwhile."""
        loop = self.world.loop
        answer: asyncio.Future[T] = loop.create_future()
        if not self.lane.alive:
            raise Gone
        self._asked.add(answer)

        async def serve() -> None:
            try:
                found = await begin()
            except Exception as error:
                fail(error)
            else:
                self.world.sky.later(0, lambda: None if answer.done() else answer.set_result(found))

        def fail(error: Exception) -> None:
            self.world.sky.later(0, lambda: None if answer.done() else answer.set_exception(error))

        loop.spawn(self.lane, serve(), "serve")
        try:
            return await answer
        finally:
            self._asked.discard(answer)

    def kill(self) -> None:
        """As kill -9 does."""
        self.world.loop.kill(self.lane)
        for answer in self._asked:
            if not answer.done():
                answer.set_exception(Gone())
        self._asked.clear()

    def cut(self, seconds: float) -> None:
        """Nothing that it sends arrives, for so long."""
        self.log.cut = self.cache.cut = True

        def mend() -> None:
            self.log.cut = self.cache.cut = False

        self.world.sky.later(seconds, mend)


class ProducerProcess(Process):
    """The append path of one process."""

    kind = "producer"

    def begin(self) -> None:
        """Starts to listen for verdicts."""
        world = self.world
        skew_ms = world.chance.choice((-5_000, 0, 0, 7_000))
        self.producer = self.lane.context.copy().run(
            lambda: Producer(
                self.log,
                self.cache,
                world.limits,
                now_ms=lambda: max(world.now_ms() + skew_ms, 0),
                mint_id=world.mint_id,
                random=Random(world.chance.getrandbits(32)),
            )
        )
        world.loop.spawn(self.lane, self.producer.start(), "start")


class WorkerProcess(Process):
    """A projector. It is a static member: a restarted one takes the old one's name."""

    kind = "worker"

    def begin(self) -> None:
        """Joins the group and projects."""
        self.member = f"worker-{self.number}"
        self.world.loop.spawn(self.lane, self._run(), "worker")

    async def _run(self) -> None:
        settings = msgspec.structs.replace(self.world.settings, member=self.member)
        self.worker = Worker(self.log, self.cache, settings, SilentMetrics(self._refolded), site=self._site)
        await self.worker.run()

    def _refolded(self) -> None:
        self.world.refolds += 1
        self.world.loop.note("folds a session anew")

    def _site(self, partition: int) -> Site:
        world = self.world
        return make_site(self.log, self.cache, partition, world.settings, now_ms=world.now_ms, nonce=world.mint_id)


class GatewayProcess(Process):
    """The reads of one process."""

    kind = "gateway"

    def begin(self) -> None:
        """Nothing runs until somebody reads."""
        self.lane.context.copy().run(self._make)

    def _make(self) -> None:
        ends = LogEnds(self.log, 1_000)
        viewer: Viewer
        news = News(self.cache, lambda partition: viewer.channel(partition))
        viewer = Viewer(self.cache, self.log.topic, self.log.partitions, ends, news)
        self.reads = Reads(viewer)
