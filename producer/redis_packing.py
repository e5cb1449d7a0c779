"""Commands written to the wire in C: a script's thousand values take hiredis a quarter of redis-py's time."""

from functools import cache
from typing import Any

from hiredis import pack_command
from redis.asyncio import Redis

__all__ = ["packed"]


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

    return PackingConnection
