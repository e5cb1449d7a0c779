"""Commands of many tasks in few round trips: the first in a turn of the loop goes to the server at once, and what
is asked for behind it in that turn goes together.

What a server refuses is one command's own; a lost connection, and a command that cannot be written to the wire, is
everybody's who was on it. Nothing is sent twice.
"""

import asyncio
from collections.abc import Sequence
from typing import Any

from redis.asyncio import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from redis.exceptions import RedisError, ResponseError

from producer.endings import end_tasks
from producer.redis_packing import Exchanging

__all__ = ["RedisBatch"]

# A batch holds up those behind it on its connection, so it ends at either bound.
COMMANDS_MAX = 128
WORDS_MAX = 4096
Command = Sequence[Any]
Boarded = list[tuple[Sequence[Command], "asyncio.Future[list[Any]]"]]


class RedisBatch:
    """`client`: a `packed` one. `flights_max`: batches under way at once, each on its own connection; others wait,
    and fill the next. `timeout_s` bounds each, with connecting."""

    def __init__(self, client: Redis, flights_max: int, timeout_s: float) -> None:
        self._pool: Any = client.connection_pool
        # How the client gives an answer to its callers: pairs as a dict, for example.
        self._reads: Any = client.response_callbacks
        self._timeout_s = timeout_s
        self._waiting: Boarded = []
        self._flights: set[asyncio.Task[None]] = set()
        self._flights_max = flights_max
        self._under_way = 0
        self._called = self._closed = False
        # Lending and giving back through the pool costs as much as most commands.
        self._idle: list[Exchanging] = []

    async def run(self, *commands: Command) -> list[Any]:
        """The answers, errors among them, of commands that follow each other on one connection. Raises RedisError
        or OSError when nothing is known of them, and what the packing raises when one that goes with them cannot
        be written."""
        if self._closed:
            raise RedisConnectionError("the client is closed")
        loop = asyncio.get_running_loop()
        first = not self._called and not self._waiting and self._under_way < self._flights_max
        if not self._called:
            self._called = True
            loop.call_soon(self._depart)
        if first:
            self._under_way += 1
            try:
                return await self._exchange(commands)
            finally:
                self._left()
        future: asyncio.Future[list[Any]] = loop.create_future()
        self._waiting.append((commands, future))
        return await future

    def _depart(self) -> None:
        self._called = False
        while self._waiting and self._under_way < self._flights_max:
            flight = asyncio.get_running_loop().create_task(self._fly(self._board()), name="redis")
            self._under_way += 1
            self._flights.add(flight)
            flight.add_done_callback(self._landed)

    def _landed(self, flight: asyncio.Task[None]) -> None:
        self._flights.discard(flight)
        self._left()

    def _left(self) -> None:
        self._under_way -= 1
        if self._waiting and not self._closed:
            self._depart()

    def _board(self) -> Boarded:
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

    async def _exchange(self, commands: Sequence[Command]) -> list[Any]:
        connection: Exchanging | None = None
        try:
            async with asyncio.timeout(self._timeout_s):
                connection = await self._connection()
                answers = await connection.exchange(commands)
        except BaseException:
            if connection is not None:
                await self._drop(connection)
            raise
        if self._closed:
            # It was still connecting when all others were closed.
            await self._drop(connection)
        else:
            self._idle.append(connection)
        return [self._read(command, answer) for command, answer in zip(commands, answers, strict=True)]

    def _read(self, command: Command, answer: Any) -> Any:
        if isinstance(answer, ResponseError):
            return answer
        read = self._reads.get(command[0])
        return answer if read is None else read(answer)

    async def _connection(self) -> Exchanging:
        while self._idle:
            connection = self._idle.pop()
            try:
                if not await connection.can_read():
                    return connection
            except (RedisError, OSError):
                pass
            # The server closed it while it was idle.
            await self._drop(connection)
        found: Exchanging = await self._pool.get_connection()
        return found

    async def _drop(self, connection: Exchanging) -> None:
        await connection.disconnect(nowait=True)
        await self._pool.release(connection)

    async def _fly(self, boarded: Boarded) -> None:
        try:
            answers = await self._exchange([command for commands, _ in boarded for command in commands])
        except Exception as error:
            # A command that cannot be written must not leave those beside it waiting for ever.
            _refuse(boarded, error)
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
        self._closed = True
        await end_tasks(self._flights)
        _refuse(self._waiting, RedisConnectionError("the client is closed"))
        self._waiting = []
        while self._idle:
            await self._drop(self._idle.pop())


def _refuse(boarded: Boarded, error: Exception) -> None:
    for _, future in boarded:
        if not future.done():
            future.set_exception(error)
            future.exception()
