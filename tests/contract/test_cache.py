"""One suite for every cache: the twin in memory, a Redis server, and a cluster of three masters."""

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from deploy.valkey import ValkeyServer
from producer.cache import LISTENING, Argument, Cache, CacheUnavailable, Script, TwinData
from producer.memory_cache import MemoryCache
from producer.redis_cache import RedisCache, open_redis
from surfacelog.errors import ProtocolError
from surfacelog.keys import tag_of

COMMANDS: list[tuple[str, tuple[Argument, ...]]] = [
    ("GET", (b"s",)),
    ("SET", (b"s", b"ab")),
    ("SET", (b"s", b"zz", b"NX")),
    ("SETNX", (b"s", b"zz")),
    ("SETNX", (b"n", 7)),
    ("APPEND", (b"s", b"cd")),
    ("STRLEN", (b"s",)),
    ("GETRANGE", (b"s", 1, 2)),
    ("GETRANGE", (b"s", -2, -1)),
    ("GETRANGE", (b"s", 9, 12)),
    ("HSET", (b"h", b"f", b"1", b"g", 2)),
    ("HSET", (b"h", b"f", b"3")),
    ("HGET", (b"h", b"f")),
    ("HGET", (b"h", b"none")),
    ("HMGET", (b"h", b"g", b"none")),
    ("HGETALL", (b"h",)),
    ("HGETALL", (b"none",)),
    ("HLEN", (b"h",)),
    ("HDEL", (b"h", b"f", b"none")),
    ("HDEL", (b"h", b"g")),
    ("EXISTS", (b"h",)),
    ("RPUSH", (b"l", b"a", b"b", b"c", 4)),
    ("LLEN", (b"l",)),
    ("LRANGE", (b"l", 1, 2)),
    ("LRANGE", (b"l", -2, -1)),
    ("LRANGE", (b"l", 5, 9)),
    ("LINDEX", (b"l", 3)),
    ("LINDEX", (b"l", 4)),
    ("LPOP", (b"l", 2)),
    ("LTRIM", (b"l", -1, -1)),
    ("LPOP", (b"l", 5)),
    ("LPOP", (b"l", 1)),
    ("EXISTS", (b"l",)),
    ("PEXPIRE", (b"none", 10)),
    ("PTTL", (b"none",)),
    ("PTTL", (b"s",)),
    ("PEXPIRE", (b"s", 60_000)),
    ("PERSIST", (b"s",)),
    ("PERSIST", (b"s",)),
    ("DEL", (b"s",)),
    ("DEL", (b"s",)),
]

LUA = "redis.call('RPUSH', KEYS[1], ARGV[1]) return {redis.call('LLEN', KEYS[1]), redis.call('GET', KEYS[2])}"


def _push(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    data.call("RPUSH", keys[0], args[0])
    return [data.call("LLEN", keys[0]), data.call("GET", keys[1])]


PUSH = Script("push", LUA, _push)


def named(unique: str, name: bytes) -> bytes:
    return b"{%s}:%s" % (unique.encode(), name)


async def test_every_command_answers_as_the_twin_does(cache: Cache, unique: str) -> None:
    twin = MemoryCache()
    for command, (key, *args) in COMMANDS:
        assert isinstance(key, bytes)
        found = await cache.call(command, named(unique, key), *args)
        assert found == await twin.call(command, named(unique, key), *args), (command, key, args)


async def test_a_script_runs_and_reads_what_it_wrote(cache: Cache, unique: str) -> None:
    keys = [named(unique, b"list"), named(unique, b"none")]
    assert await cache.run(PUSH, keys, [b"one"]) == [1, None]
    assert await cache.run(PUSH, keys, [b"two"]) == [2, None]
    assert await cache.call("LRANGE", keys[0], 0, -1) == [b"one", b"two"]


async def test_a_lock_is_held_by_one_and_the_script_reads_in_either_case(cache: Cache, unique: str) -> None:
    keys = [named(unique, b"list"), named(unique, b"none")]
    name = named(unique, b"lock")
    lock, answer = await cache.acquire(name, 5000, PUSH, keys, [b"one"])
    assert lock is not None
    assert answer == [1, None]
    other, answer = await cache.acquire(name, 5000, PUSH, keys, [b"two"])
    assert other is None
    assert answer == [2, None]
    await lock.release()
    other, _ = await cache.acquire(name, 5000, PUSH, keys, [b"three"])
    assert other is not None
    await lock.release()
    assert await cache.call("EXISTS", name) == 1, "an old holder let somebody else's lock go"
    await other.release()


async def test_a_lock_that_ran_out_is_lost_and_cannot_be_extended(cache: Cache, unique: str) -> None:
    keys = [named(unique, b"list"), named(unique, b"none")]
    name = named(unique, b"lock")
    lock, _ = await cache.acquire(name, 40, PUSH, keys, [b"x"])
    assert lock is not None
    assert await lock.extend(80)
    await asyncio.sleep(0.06)
    assert await cache.call("EXISTS", name) == 1
    await asyncio.sleep(0.06)
    assert await cache.call("EXISTS", name) == 0
    assert not await lock.extend(1000)
    await lock.release()


async def test_listeners_on_any_shard_hear_what_is_published(cache: Cache, unique: str) -> None:
    channels = [b"sl:{%s}:news" % tag_of(partition, 8, unique) for partition in range(8)]
    heard = cache.listen(channels)
    assert await anext(heard) == LISTENING
    publish = Script(
        "publish",
        "return redis.call('SPUBLISH', KEYS[1], ARGV[1])",
        lambda data, keys, args: data.call("SPUBLISH", keys[0], args[0]),
    )
    for channel in channels:
        await cache.run(publish, [channel], [b"news of " + channel])
    found = {await asyncio.wait_for(anext(heard), 5) for _ in channels}
    assert found == {(channel, b"news of " + channel) for channel in channels}
    await heard.aclose()  # type: ignore[attr-defined]


async def test_a_listener_takes_a_lost_connection_up_anew_and_says_so(redis_server: ValkeyServer) -> None:
    cache = await open_redis(redis_server.url)
    heard = cache.listen([b"{a}news"])
    assert await anext(heard) == LISTENING
    redis_server.restart()
    assert await asyncio.wait_for(anext(heard), 10) == LISTENING
    await cache.call("SPUBLISH", b"{a}news", b"again")
    assert await asyncio.wait_for(anext(heard), 5) == (b"{a}news", b"again")
    await heard.aclose()  # type: ignore[attr-defined]
    await cache.close()


async def test_a_server_that_is_away_is_unavailable_within_the_time_given(redis_server: ValkeyServer) -> None:
    cache = RedisCache(redis_server.url, timeout_ms=300)
    await cache.call("SET", b"k", b"v")
    redis_server.pause()
    with pytest.raises(CacheUnavailable):
        await asyncio.wait_for(cache.call("GET", b"k"), 2)
    redis_server.resume()
    assert await cache.call("GET", b"k") == b"v"
    redis_server.kill()
    with pytest.raises(CacheUnavailable):
        await asyncio.wait_for(cache.acquire(b"lock", 100, PUSH, [b"a", b"b"], [b"x"]), 2)
    await cache.close()


async def test_a_server_that_may_evict_keys_is_refused(redis_server: ValkeyServer) -> None:
    with redis_server.client() as client:
        client.config_set("maxmemory-policy", "allkeys-lru")
    with pytest.raises(ProtocolError) as refusal:
        await open_redis(redis_server.url)
    assert refusal.value.code == "misconfigured"


async def test_many_at_once_get_each_their_own_answer(redis_server: ValkeyServer, unique: str) -> None:
    cache = RedisCache(redis_server.url)
    name = unique.encode()
    await asyncio.gather(*(cache.call("HSET", name, b"%d" % number, number) for number in range(500)))
    asked = [cache.call("HGET", name, b"%d" % number) for number in range(500)]
    broken = cache.call("LPUSH", name, b"x")
    *found, refused = await asyncio.gather(*asked, broken, return_exceptions=True)
    assert found == [b"%d" % number for number in range(500)]
    assert isinstance(refused, CacheUnavailable)
    await cache.close()


async def test_a_connection_that_the_server_closed_while_nobody_used_it_is_not_used(
    redis_server: ValkeyServer,
) -> None:
    cache = RedisCache(redis_server.url)
    for _ in range(3):
        before = await cache.call("CLIENT", b"ID")
        other = RedisCache(redis_server.url)
        assert await other.call("CLIENT", b"KILL", b"ID", before) == 1
        await other.close()
        await asyncio.sleep(0.05)
        assert await cache.call("CLIENT", b"ID") != before
    await cache.close()


async def test_a_connection_that_was_being_made_while_the_cache_was_closed_does_not_stay(
    redis_server: ValkeyServer,
) -> None:
    other = RedisCache(redis_server.url)
    closed = RedisCache(redis_server.url)
    asking = asyncio.create_task(closed.call("CLIENT", b"ID"))
    await asyncio.sleep(0)
    await closed.close()
    (answer,) = await asyncio.gather(asking, return_exceptions=True)
    assert isinstance(answer, int | CacheUnavailable)
    async with asyncio.timeout(3):
        while (await other.call("CLIENT", b"LIST")).count(b"id=") > 1:
            await asyncio.sleep(0.01)
    await other.close()


async def test_an_answer_that_came_too_late_is_nobody_elses(redis_server: ValkeyServer, unique: str) -> None:
    cache = RedisCache(redis_server.url, timeout_ms=100)
    name = unique.encode()
    await cache.call("SET", name, b"theirs")
    with pytest.raises(CacheUnavailable):
        await cache.call("BLPOP", name + b"-none", 1)
    assert await cache.call("GET", name) == b"theirs"
    asking = asyncio.create_task(cache.call("BLPOP", name + b"-none", 1))
    await asyncio.sleep(0.02)
    asking.cancel()
    await asyncio.gather(asking, return_exceptions=True)
    assert await cache.call("GET", name) == b"theirs"
    await cache.close()


async def test_a_command_that_cannot_be_sent_leaves_nobody_waiting(cache: Cache, unique: str) -> None:
    key = b"{%s}:s" % unique.encode()
    wrong: Any = "\ud800"
    async with asyncio.timeout(3):
        calls = (cache.call("GET", key), cache.call("SET", key, wrong), cache.call("GET", key))
        found = await asyncio.gather(*calls, return_exceptions=True)
    assert found[0] is None
    assert isinstance(found[1], UnicodeEncodeError | TypeError)
    assert found[2] is None or isinstance(found[2], UnicodeEncodeError)
    assert await cache.call("GET", key) is None
