"""What a simulated process holds in the place of its connections: the log and the cache, through the weather.

A request travels in the world's lane, not in the caller's: killing or pausing the caller does not call back what
it sent, and whoever is cut off hears nothing.
"""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AbstractAsyncContextManager
from functools import partial
from typing import Any, TypeVar

from producer.cache import Argument, CacheLock, CacheUnavailable, Script
from producer.log import LogConsumer, LogRecord, ProduceUnknown, Told, Unavailable, check_size
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic, ProduceFault
from sim.loop import SimLoop
from sim.weather import CALM, Weather

__all__ = ["QuickWireLog", "Sky", "WireCache", "WireLog"]

T = TypeVar("T")

# What a client library waits before it gives an operation up.
PATIENCE_S = 1.0
UNKNOWN_S = 0.5
READ_BYTES_MAX = 1 << 20


class Sky:
    """The weather of now, for all."""

    def __init__(self, loop: SimLoop) -> None:
        self.loop = loop
        self.weather: Weather = CALM

    def chance(self, odds: float) -> bool:
        """True with these odds."""
        return odds > 0 and self.loop.random.random() < odds

    def later(self, delay_s: float, act: Callable[[], object]) -> None:
        """Does something in the world's lane, after a delay."""
        self.loop.world.context.copy().run(self.loop.call_later, delay_s, act)


def at_once(coro: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine of a twin that has nothing to wait for."""
    try:
        coro.send(None)
    except StopIteration as stop:
        result: T = stop.value
        return result
    coro.close()
    raise AssertionError("a twin waited for something outside the weather")


class Wire:
    """One process's connections. `cut`: nothing it sends arrives."""

    def __init__(self, sky: Sky) -> None:
        self.sky = sky
        self.cut = False

    async def ask(self, act: Callable[[], T], away: type[Exception], lost: float = 0.0, mute: float = 0.0) -> T:
        """Carries `act` to a server and its answer back. Raises `away` when one of the ways is lost."""
        sky = self.sky
        answer: asyncio.Future[T] = sky.loop.create_future()
        weather, chance = sky.weather, sky.loop.random
        if self.cut or sky.chance(lost):
            sky.later(PATIENCE_S, lambda: _fail(answer, away("no answer")))
            return await answer
        silent = sky.chance(mute)

        def arrive() -> None:
            try:
                found = act()
            except Exception as error:
                _fail(answer, error)
                return
            if silent or self.cut:
                sky.later(PATIENCE_S, lambda: _fail(answer, away("the answer was lost")))
            else:
                sky.later(weather.delay_s(chance), lambda: _tell(answer, found))

        sky.later(weather.delay_s(chance), arrive)
        return await answer


class WireCache(Wire):
    """The cache as one process reaches it."""

    def __init__(self, sky: Sky, inner: MemoryCache) -> None:
        super().__init__(sky)
        self._inner = inner

    async def carry(self, begin: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Does one thing at the cache."""
        weather = self.sky.weather
        return await self.ask(
            lambda: at_once(begin()), CacheUnavailable, lost=weather.cache_lost, mute=weather.cache_mute
        )

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """One script."""
        return await self.carry(lambda: self._inner.run(script, keys, args))

    async def call(self, command: str, *args: Argument) -> Any:
        """One plain command."""
        return await self.carry(lambda: self._inner.call(command, *args))

    async def acquire(
        self, key: bytes, ttl_ms: int, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
    ) -> tuple[CacheLock | None, Any]:
        """Tries the lock once and reads."""
        lock, answer = await self.carry(lambda: self._inner.acquire(key, ttl_ms, script, keys, args))
        return (None if lock is None else WireLock(self, lock)), answer

    async def listen(self, channels: Sequence[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
        """Notifications; each may be lost."""
        async for channel, payload in self._inner.listen(channels):
            if not self.cut and not (channel and self.sky.chance(self.sky.weather.unheard)):
                yield channel, payload

    async def check(self) -> None:
        """Whether it answers."""
        await self.carry(self._inner.check)

    async def close(self) -> None:
        """Nothing is held."""


class WireLock:
    """A lock held through the weather."""

    def __init__(self, wire: WireCache, inner: CacheLock) -> None:
        self._wire = wire
        self._inner = inner

    async def extend(self, ttl_ms: int) -> bool:
        """As CacheLock says."""
        return await self._wire.carry(lambda: self._inner.extend(ttl_ms))

    async def release(self) -> None:
        """As CacheLock says."""
        await self._wire.carry(self._inner.release)


class WireLog(Wire):
    """The log as one process reaches it. What it produces to a partition arrives in the order in which it was
    sent, but for copies that are late or doubled: Kafka would not do that, and the protocol must not need it."""

    def __init__(self, sky: Sky, topic: MemoryTopic) -> None:
        super().__init__(sky)
        self._topic = topic
        self._client = MemoryLog(topic, _Fetches(self))
        self._arrived: dict[int, float] = {}
        self.partitions = topic.partitions
        self.topic = topic.topic
        self.size_bytes_max = topic.size_bytes_max

    @property
    def topic_id(self) -> str:
        """As EventLog says."""
        return self._topic.topic_id

    async def produce(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, timeout_ms: int
    ) -> int:
        """Writes one record, or not, or twice."""
        return await self.put(partition, key, headers, value, min(UNKNOWN_S, timeout_ms / 1000))

    def put(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, patience_s: float
    ) -> "asyncio.Future[int]":
        """Sends one record on its way; what nobody knows is told after `patience_s`."""
        check_size(key, headers, value, self.size_bytes_max)
        sky, weather, chance = self.sky, self.sky.weather, self.sky.loop.random
        answer: asyncio.Future[int] = sky.loop.create_future()
        if self.cut or weather.log_away or sky.chance(weather.refused):
            sky.later(weather.delay_s(chance), lambda: _fail(answer, Unavailable("the log is away")))
            return answer

        def write() -> int:
            return self._topic.append(partition, key, headers, value, int(sky.loop.time() * 1000))

        def arrive() -> None:
            offset = write()
            sky.later(weather.delay_s(chance), lambda: _tell(answer, offset))

        now_s = sky.loop.time()
        arrival_s = max(self._arrived.get(partition, 0.0), now_s + weather.delay_s(chance))
        late_s = chance.random() * weather.late_ms_max / 1000
        unknown = ProduceUnknown("no acknowledgement in time")
        fate = chance.random()
        if fate < weather.lost:
            sky.later(patience_s, lambda: _fail(answer, unknown))
        elif fate < weather.lost + weather.late:
            sky.later(late_s, write)
            sky.later(patience_s, lambda: _fail(answer, unknown))
        else:
            self._arrived[partition] = arrival_s
            landed = fate < weather.lost + weather.late + weather.landed
            sky.later(arrival_s - now_s, write if landed else arrive)
            sky.later(arrival_s - now_s + patience_s, lambda: _fail(answer, unknown))
            if sky.chance(weather.doubled):
                sky.later(arrival_s - now_s + late_s, write)
        return answer

    async def ends(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        """As EventLog says."""
        return await self._look(lambda: {partition: self._topic.end(partition) for partition in partitions})

    async def starts(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        """As EventLog says."""
        return await self._look(lambda: {partition: self._topic.start(partition) for partition in partitions})

    async def read(self, partition: int, offset: int, records_max: int, timeout_ms: int) -> list[LogRecord]:
        """As EventLog says."""
        return await self._look(lambda: self._topic.slice(partition, offset, records_max, READ_BYTES_MAX))

    async def _look(self, act: Callable[[], T]) -> T:
        away = 1.0 if self.sky.weather.log_away else self.sky.weather.refused
        return await self.ask(act, Unavailable, lost=away)

    def consumer(self, group: str, member: str) -> AbstractAsyncContextManager[LogConsumer]:
        """A member of the workers' group."""
        return self._client.consumer(group, member)

    async def close(self) -> None:
        """Nothing is held."""


class QuickWireLog(WireLog):
    """A log that also takes records without a task to wait for each, as Kafka's does."""

    def send(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, told: Told
    ) -> bool:
        """As QuickLog says. Its answer may come long after whoever sent has given up."""
        chance = self.sky.loop.random
        if chance.random() < 0.1:
            return False
        patience_s = chance.choice((UNKNOWN_S, 4 * UNKNOWN_S, 10 * UNKNOWN_S))
        self.put(partition, key, headers, value, patience_s).add_done_callback(partial(_pass_on, told))
        return True


class _Fetches:
    """The network between a consumer and the log."""

    def __init__(self, wire: WireLog) -> None:
        self._wire = wire

    def produce(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes
    ) -> ProduceFault:
        """Consumers do not produce."""
        raise AssertionError("a consumer produced")

    def call(self, name: str) -> float:
        """A fetch's delay (ms); raises Unavailable."""
        sky = self._wire.sky
        if self._wire.cut or sky.weather.log_away or sky.chance(sky.weather.refused):
            raise Unavailable("the log is away")
        return sky.weather.delay_s(sky.loop.random) * 1000


def _pass_on(told: Told, answer: "asyncio.Future[int]") -> None:
    error = answer.exception()
    if error is None:
        told(answer.result(), None)
    elif isinstance(error, Exception):
        told(-1, error)


def _tell(answer: "asyncio.Future[T]", found: T) -> None:
    if not answer.done():
        answer.set_result(found)


def _fail(answer: "asyncio.Future[Any]", error: Exception) -> None:
    if not answer.done():
        answer.set_exception(error)
        # A caller that was killed or cancelled never looks; that is no fault.
        answer.exception()
