"""Connections that write commands in C and exchange them without ceremony.

A script's thousand values take hiredis a quarter of redis-py's time; and the way through its client, with a task
and two timers for each command, costs more than most commands do.
"""

import math
from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

from hiredis import pack_command
from redis.asyncio import Redis
from redis.exceptions import ResponseError

__all__ = ["Exchanging", "packed"]


class Exchanging(Protocol):
    """A connection of a `packed` client's pool."""

    async def exchange(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
        """The answers, errors among them, of commands that follow each other. Sets no limit of time: after a
        time-out or any exception the connection is of no use."""
        ...

    async def can_read(self) -> bool:
        """Whether something came that nobody asked for, such as the connection's end; OSError if it is closed."""
        ...

    async def disconnect(self, nowait: bool = False) -> None:
        """Closes it."""
        ...


def packed(client: Redis) -> Redis:
    """The client, whose connections (of whatever kind its URL asks for) pack that way."""
    pool: Any = client.connection_pool
    pool.connection_class = _packing(pool.connection_class)
    return client


@cache
def _packing(kind: Any) -> type[Any]:
    class PackingConnection(kind):  # type: ignore[misc]
        def pack_command(self, *args: Any) -> list[bytes]:
            first = args[0]
            if isinstance(first, str) and " " in first:
                args = (*first.split(), *args[1:])
            return [pack_command(args)]

        async def exchange(self, commands: Sequence[Sequence[Any]]) -> list[Any]:
            self._writer.writelines([part for command in commands for part in self.pack_command(*command)])
            await self._writer.drain()
            found: list[Any] = []
            for _ in commands:
                try:
                    found.append(await self.read_response(timeout=math.inf))
                except ResponseError as error:
                    found.append(error)
            return found

    return PackingConnection
