"""Commands of many tasks in one round trip: what is asked for in one turn of the loop goes to the server together.

One command's fault is its own; a lost connection is everybody's who was on it. Nothing is sent twice.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import RedisError, ResponseError

__all__ = ["RedisBatch"]

# A batch holds up those behind it on its connection, so it ends at either bound.
COMMANDS_MAX = 128
WORDS_MAX = 4096
Command = Sequence[Any]


class RedisBatch:
    """`flights_max`: batches under way at once, each on its own connection; others wait, and fill the next."""

    def __init__(self, client: Redis, flights_max: int) -> None:
        self._client = client
        self._waiting: list[tuple[Sequence[Command], asyncio.Future[list[Any]]]] = []
        self._flights: set[asyncio.Task[None]] = set()
        self._flights_max = flights_max
        self._called = False

    async def run(self, *commands: Command) -> list[Any]:
        """The answers, errors among them, of commands that follow each other on one connection. Raises RedisError
        or OSError when nothing is known of them."""
        loop = asyncio.get_running_loop()
        future: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append((commands, future))
        if not self._called:
            self._called = True
            loop.call_soon(self._depart)
        return await future

    def _depart(self) -> None:
        self._called = False
        while self._waiting and len(self._flights) < self._flights_max:
            flight = asyncio.get_running_loop().create_task(self._fly(self._board()), name="redis")
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        if self._waiting and not flight.get_loop().is_closed():
            self._depart()

    def _board(self) -> list[tuple[Sequence[Command], asyncio.Future[list[Any]]]]:
        count = words = 0
        boarded = 0
        for commands, _ in self._waiting:
            boarded += 1
            count += len(commands)
            words += sum(map(len, commands))
            if count >= COMMANDS_MAX or words >= WORDS_MAX:
                break
        found, self._waiting = self._waiting[:boarded], self._waiting[boarded:]
        return found

    async def _one(self, command: Command) -> list[Any]:
        try:
            return [await self._client.execute_command(*command)]  # type: ignore[no-untyped-call]
        except ResponseError as error:
            return [error]

    async def _many(self, commands: list[Command]) -> list[Any]:
        pipeline: Any = self._client.pipeline(transaction=False)
        for command in commands:
            pipeline.execute_command(*command)
        return list(await pipeline.execute(raise_on_error=False))

    async def _fly(self, boarded: list[tuple[Sequence[Command], asyncio.Future[list[Any]]]]) -> None:
        words = [command for commands, _ in boarded for command in commands]
        try:
            answers = await (self._one(words[0]) if len(words) == 1 else self._many(words))
        except (RedisError, OSError) as error:
            for _, future in boarded:
                if not future.done():
                    future.set_exception(error)
                    future.exception()
            return
        except asyncio.CancelledError:
            for _, future in boarded:
                future.cancel()
            raise
        first = 0
        for commands, future in boarded:
            if not future.done():
                future.set_result(answers[first : first + len(commands)])
            first += len(commands)

    async def close(self) -> None:
        """Gives up what is under way."""
        for flight in self._flights:
            flight.cancel()
        await asyncio.gather(*self._flights, return_exceptions=True)
