"""The cache on Redis or Valkey 7+, a single server or a cluster, through redis-py.

A command whose answer is lost is never sent again by itself: the caller knows what may be repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any, TypeVar

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import LockError, NoScriptError, RedisError

from producer.cache import Argument, CacheUnavailable, Script
from producer.redis_listen import listen_cluster, listen_single
from producer.redis_packing import packed
from surfacelog.errors import ProtocolError

__all__ = ["RedisCache", "RedisLock", "open_redis"]

VERSION_MIN = 7
Answer = TypeVar("Answer")
Client = Redis | RedisCluster


async def open_redis(url: str) -> "RedisCache":
    """A checked cache on the server or cluster at `url`; which of the two it is, the server says. Raises
    `misconfigured` or CacheUnavailable."""
    probe = RedisCache(url)
    try:
        (info,) = await probe.info()
        if not int(info.get("cluster_enabled", 0)):
            await probe.check()
            return probe
    except BaseException:
        await probe.close()
        raise
    await probe.close()
    cache = RedisCache(url, cluster=True)
    try:
        await cache.check()
    except BaseException:
        await cache.close()
        raise
    return cache


class RedisCache:
    """`url`: redis://, rediss:// or unix://. `timeout_ms` bounds each operation and each connect."""

    def __init__(
        self, url: str, *, cluster: bool = False, timeout_ms: int = 5000, connections_max: int = 128
    ) -> None:
        self.url = url
        options: dict[str, Any] = {
            "protocol": 2,
            "socket_timeout": timeout_ms / 1000,
            "socket_connect_timeout": timeout_ms / 1000,
            "retry": Retry(NoBackoff(), 0),
            "max_connections": connections_max,
        }
        self._options = options
        self._client: Any
        if cluster:
            # A cluster client must follow a moved slot, which its own retries do.
            options = options | {"retry": Retry(NoBackoff(), 3)}
            self._client = RedisCluster.from_url(url, **options)
        else:
            self._client = packed(Redis.from_url(url, **options))
        self._slots = asyncio.Semaphore(connections_max)
        self._shas: dict[str, str] = {}

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """Runs the script by its digest; sends its text when the server does not know it."""
        return await self._guarded(self._run(script, keys, args))

    async def _run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        try:
            return await self._client.execute_command("EVALSHA", self._sha(script), len(keys), *keys, *args)
        except NoScriptError:
            return await self._client.execute_command("EVAL", script.lua, len(keys), *keys, *args)

    async def call(self, command: str, *args: Argument) -> Any:
        """One plain command."""
        return await self._guarded(self._client.execute_command(command, *args))

    async def acquire(
        self, key: bytes, ttl_ms: int, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
    ) -> tuple["RedisLock | None", Any]:
        """Tries the lock once and reads, in one pipelined round trip: SET NX PX, then the script."""
        lock = RedisLock(self._client, key, ttl_ms)
        reading = ("EVALSHA", self._sha(script), len(keys), *keys, *args)
        held, answer = await self._guarded(lock.acquire_reading(reading))
        if isinstance(answer, NoScriptError):
            try:
                answer = await self.run(script, keys, args)
            except BaseException:
                if held:
                    with suppress(CacheUnavailable):
                        await lock.release()
                raise
        return lock if held else None, answer

    def listen(self, channels: Sequence[bytes]) -> AsyncIterator[tuple[bytes, bytes]]:
        """Messages of sharded channels, each on the node that owns its slot."""
        if isinstance(self._client, RedisCluster):
            return listen_cluster(self._client, self.url, channels, self._options)
        return listen_single(self._client, channels)

    async def check(self) -> None:
        """Raises `misconfigured` when the server is too old or may evict keys."""
        for info in await self.info():
            version, policy = str(info.get("redis_version", "0")), str(info.get("maxmemory_policy", "unknown"))
            if int(version.split(".")[0]) < VERSION_MIN:
                raise ProtocolError(
                    "misconfigured", f"the cache server is {version}; use Redis or Valkey 7 or newer"
                )
            if policy != "noeviction":
                raise ProtocolError(
                    "misconfigured", f"the cache server evicts keys ({policy}); set maxmemory-policy to noeviction"
                )

    async def info(self) -> list[dict[str, Any]]:
        """What each server says of itself; raises CacheUnavailable."""
        return await self._guarded(self._info())

    async def _info(self) -> list[dict[str, Any]]:
        if not isinstance(self._client, RedisCluster):
            return [await self._client.execute_command("INFO")]
        found = await self._client.execute_command("INFO", target_nodes=RedisCluster.PRIMARIES)
        return [found] if "redis_version" in found else list(found.values())

    async def close(self) -> None:
        """Lets go of all connections."""
        await self._client.aclose()

    def _sha(self, script: Script) -> str:
        sha = self._shas.get(script.name)
        if sha is None:
            sha = self._shas[script.name] = sha1(script.lua.encode()).hexdigest()  # noqa: S324 - Redis names it so
        return sha

    async def _guarded(self, operation: Awaitable[Answer]) -> Answer:
        async with self._slots:
            return await guarded(operation)


class RedisLock(Lock):
    """redis-py's lock, taken together with a read."""

    def __init__(self, client: Client, key: bytes, ttl_ms: int) -> None:
        super().__init__(client, key, timeout=ttl_ms / 1000, blocking=False, thread_local=False)

    async def acquire_reading(self, reading: Sequence[Any]) -> tuple[bool, Any]:
        """One round trip: tries the lock, then runs the command `reading`; (held, its answer)."""
        self._reading = reading
        self._answer: Any = None
        held = await self.acquire(blocking=False)
        return bool(held), self._answer

    async def do_acquire(self, token: str | bytes) -> bool:
        """SET NX PX and the read in one pipeline."""
        assert self.timeout is not None
        pipeline: Any = self.redis.pipeline(transaction=False)
        pipeline.execute_command("SET", self.name, token, "NX", "PX", int(self.timeout * 1000))
        pipeline.execute_command(*self._reading)
        held, self._answer = await pipeline.execute(raise_on_error=False)
        if isinstance(held, Exception):
            raise held
        if isinstance(self._answer, Exception) and not isinstance(self._answer, NoScriptError):
            raise self._answer
        return bool(held)

    async def extend(self, ttl_ms: int) -> bool:  # type: ignore[override]
        """Holds it for `ttl_ms` from now; False when it was lost."""
        try:
            return bool(await guarded(super().extend(ttl_ms / 1000, replace_ttl=True)))
        except LockError:
            return False

    async def release(self) -> None:
        """Compare and delete; a lock that was lost is somebody else's."""
        with suppress(LockError):
            await guarded(super().release())


async def guarded(operation: Awaitable[Answer]) -> Answer:
    """The operation's answer; every failure of the server or the way to it is CacheUnavailable."""
    try:
        return await operation
    except LockError:
        raise
    except (RedisError, OSError) as error:
        raise CacheUnavailable(f"{type(error).__name__}: {error}") from error
