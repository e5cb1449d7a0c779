"""The cache on Redis or Valkey 7+, a single server or a cluster, through redis-py.

A command whose answer is lost is never sent again by itself: the caller knows what may be repeated.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import suppress
from hashlib import sha1
from typing import Any, TypeVar

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.lock import Lock
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import NoScriptError, RedisError, ResponseError

from producer.cache import Argument, CacheUnavailable, Script
from producer.redis_batch import RedisBatch
from producer.redis_listen import listen_cluster, listen_single
from producer.redis_packing import packed
from surfacelog.errors import ProtocolError

__all__ = ["RedisCache", "RedisLock", "open_redis"]

VERSION_MIN = 7
# A few batches overlap, so that a slow script does not hold up all others; more would only make them smaller.
FLIGHTS_MAX = 8
Answer = TypeVar("Answer")
Client = Redis | RedisCluster
Exchange = Callable[..., Awaitable[list[Any]]]


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
        self._batch: RedisBatch | None = None
        if cluster:
            self._client = RedisCluster.from_url(url, **options)
        else:
            self._client = packed(Redis.from_url(url, **options))
            self._batch = RedisBatch(self._client, FLIGHTS_MAX, timeout_ms / 1000)
        self._slots = asyncio.Semaphore(connections_max)
        self._shas: dict[str, str] = {}

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        """Runs the script by its digest; sends its text when the server does not know it."""
        try:
            return await self._ask("EVALSHA", self._sha(script), len(keys), *keys, *args)
        except UnknownScript:
            return await self._ask("EVAL", script.lua, len(keys), *keys, *args)

    async def call(self, command: str, *args: Argument) -> Any:
        """One plain command."""
        return await self._ask(command, *args)

    async def acquire(
        self, key: bytes, ttl_ms: int, script: Script, keys: Sequence[bytes], args: Sequence[Argument]
    ) -> tuple["RedisLock | None", Any]:
        """Tries the lock once and reads, in one round trip: SET NX PX, then the script."""
        lock = RedisLock(self._client, self._exchange, key, ttl_ms)
        held, answer = await lock.acquire_reading(("EVALSHA", self._sha(script), len(keys), *keys, *args))
        if isinstance(answer, NoScriptError):
            try:
                answer = await self.run(script, keys, args)
            except BaseException:
                if held:
                    with suppress(CacheUnavailable):
                        await lock.release()
                raise
        return lock if held else None, answer

    async def _ask(self, *command: Any) -> Any:
        (answer,) = await self._exchange(command)
        if isinstance(answer, NoScriptError):
            raise UnknownScript
        if isinstance(answer, Exception):
            raise CacheUnavailable(f"{type(answer).__name__}: {answer}") from answer
        return answer

    async def _exchange(self, *commands: Sequence[Any]) -> list[Any]:
        """The answers, errors among them, of commands that follow each other."""
        if self._batch is not None:
            return await guarded(self._batch.run(*commands))
        async with self._slots:
            try:
                if len(commands) == 1:
                    return [await guarded(_answer(self._client.execute_command(*commands[0])))]
                pipeline: Any = self._client.pipeline()
                for command in commands:
                    pipeline.execute_command(*command)
                return list(await guarded(pipeline.execute(raise_on_error=False)))
            except AttributeError as error:
                # So the cluster client tells of a connection that was closed while it wrote.
                raise CacheUnavailable(f"the connection was closed: {error}") from error

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
        return await guarded(self._info())

    async def _info(self) -> list[dict[str, Any]]:
        if not isinstance(self._client, RedisCluster):
            return [await self._client.execute_command("INFO")]
        found = await self._client.execute_command("INFO", target_nodes=RedisCluster.PRIMARIES)
        return [found] if "redis_version" in found else list(found.values())

    async def close(self) -> None:
        """Lets go of all connections."""
        if self._batch is not None:
            await self._batch.close()
        await self._client.aclose()

    def _sha(self, script: Script) -> str:
        sha = self._shas.get(script.name)
        if sha is None:
            sha = self._shas[script.name] = sha1(script.lua.encode()).hexdigest()  # noqa: S324 - Redis names it so
        return sha


class RedisLock(Lock):
    """redis-py's lock, taken together with a read."""

    def __init__(self, client: Client, exchange: Exchange, key: bytes, ttl_ms: int) -> None:
        """`exchange` sends commands that follow each other and gives their answers, errors among them."""
        self._exchange = exchange
        super().__init__(client, key, timeout=ttl_ms / 1000, blocking=False, thread_local=False)

    async def acquire_reading(self, reading: Sequence[Any]) -> tuple[bool, Any]:
        """One round trip: tries the lock, then runs the command `reading`; (held, its answer)."""
        self._reading = reading
        self._answer: Any = None
        held = await self.acquire(blocking=False)
        return bool(held), self._answer

    async def do_acquire(self, token: str | bytes) -> bool:
        """SET NX PX and the read behind it."""
        assert self.timeout is not None
        taking = ("SET", self.name, token, "NX", "PX", int(self.timeout * 1000))
        held, self._answer = await self._exchange(taking, self._reading)
        for answer in (held, self._answer):
            if isinstance(answer, Exception) and not isinstance(answer, NoScriptError):
                raise CacheUnavailable(f"{type(answer).__name__}: {answer}") from answer
        return bool(held)

    async def extend(self, ttl_ms: int) -> bool:  # type: ignore[override]
        """Holds it for `ttl_ms` from now; False when it was lost."""
        return bool(await self._decide(self.lua_extend, self.local.token, ttl_ms, b"1"))

    async def release(self) -> None:
        """Compare and delete; a lock that was lost is somebody else's."""
        await self._decide(self.lua_release, self.local.token)

    async def _decide(self, script: Any, *args: Argument) -> Any:
        for command, text in (("EVALSHA", script.sha), ("EVAL", script.script)):
            (answer,) = await self._exchange((command, text, 1, self.name, *args))
            if not isinstance(answer, NoScriptError):
                break
        if isinstance(answer, Exception):
            raise CacheUnavailable(f"{type(answer).__name__}: {answer}") from answer
        return answer


async def _answer(operation: Awaitable[Any]) -> Any:
    try:
        return await operation
    except ResponseError as error:
        return error


class UnknownScript(Exception):
    """The server does not have the script of this digest."""


async def guarded(operation: Awaitable[Answer]) -> Answer:
    """The operation's answer; every failure of the server or the way to it is CacheUnavailable."""
    try:
        return await operation
    except (RedisError, OSError) as error:
        raise CacheUnavailable(f"{type(error).__name__}: {error}") from error
