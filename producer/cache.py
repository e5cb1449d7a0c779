"""The cache as the ledger uses it: one server-side script per atomic operation, plus locks and channels.

Redis (or Valkey) stands behind it, and an in-memory twin that the simulation and the tests use. A script is a
Lua file and a function that does the same to the twin's data.
"""

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, Protocol

import msgspec

__all__ = ["LISTENING", "Argument", "Cache", "CacheLock", "CacheUnavailable", "Script", "TwinData"]

Argument = bytes | int

# Reads as a message without news on a channel of no name: a listener may treat it as any other.
LISTENING = (b"", b"[]")


class CacheUnavailable(Exception):
    """The cache does not answer, or it is not one that may be used; nothing is known of what was asked."""


class TwinData(Protocol):
    """What a script's twin may do to the in-memory cache: the Redis commands of the same names, on bytes."""

    def call(self, command: str, *args: Argument) -> Any:
        """One Redis command, for example `call("HSET", key, field, value)`; answers as redis-py, undecoded."""
        ...


class Script(msgspec.Struct, frozen=True):
    """An atomic operation. `lua` is the script's text; `twin` does the same to the in-memory cache."""

    name: str
    lua: str
    twin: Callable[[TwinData, Sequence[bytes], Sequence[Argument]], Any]


class CacheLock(Protocol):
    """A held lock. Losing it is possible at any time: it only keeps writers from colliding."""

    async def extend(self, ttl_ms: int) -> bool:
        """Holds it for `ttl_ms` from now; False when it was lost."""
        ...

    async def release(self) -> None:
        """Lets it go if it is still held (compare and delete)."""
        ...


class Cache(Protocol):
    """All keys of one call lie in one hash slot."""

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """Runs a script once, atomically. A call whose answer was lost may have run: raises CacheUnavailable."""
        ...

    async def call(self, command: str, *args: Argument) -> Any:
        """One plain command; the first argument is its key."""
        ...

    async def acquire(
        self, key: bytes, ttl_ms: int, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
    ) -> tuple[CacheLock | None, Any]:
        """Tries once to take the lock at `key` and runs a reading script in the same round trip: the lock, or None
        when somebody holds it, and the script's answer."""
        ...

    def listen(self, channels: Sequence[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
        """Messages (channel, payload) of sharded channels, until the iterator is closed. `LISTENING` comes first,
        once the subscriptions stand, and again whenever a lost connection was taken up anew: what was published
        before it may be lost, so catch up then. A message may be lost at any time."""
        ...

    async def check(self) -> None:
        """Raises ProtocolError misconfigured when the server may evict keys, or CacheUnavailable."""
        ...

    async def close(self) -> None:
        """Lets go of all connections."""
        ...
