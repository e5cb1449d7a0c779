"""The reading scripts on a real server answer as their twins do on the same data."""

import random
from collections.abc import AsyncIterator
from typing import Any

import pytest

from gateway.scripts import EVENTS, MESSAGES, SESSION, TRANSCRIPT
from producer.cache import Argument, Cache, Script
from producer.memory_cache import MemoryCache
from producer.redis_cache import RedisCache

OPEN = b"0199-open"
COMMITS = [(0, 5), (3, 6), (4, 90), (9, 91), (10, 200), (17, 2**40)]
NEXT = 20
TAIL = [b'{"seq":%d}' % seq for seq in range(15, NEXT)]
SEQS = [b"%d" % seq for seq in (0, 2, 3, 9, 14, 15, 18, 19)]


@pytest.fixture
async def caches(redis: str) -> AsyncIterator[tuple[Cache, Cache]]:
    real = RedisCache(redis)
    yield real, MemoryCache()
    await real.close()


class Planted:
    """The keys of one session, filled alike in both caches."""

    def __init__(self, name: str) -> None:
        root = b"{%s}:" % name.encode()
        self.gate = [root + part for part in (b"serving", b"cp", b"dir", b"meta")]
        self.messages, self.surface, self.tail, self.offsets, self.transcript = (
            root + part for part in (b"messages:", b"surface", b"tail", b"offsets", b"transcript")
        )
        self.root = root

    async def fill(self, cache: Cache) -> None:
        serving, checkpoint, directory, meta = self.gate
        await cache.call("SET", serving, b"1")
        await cache.call("HSET", checkpoint, b"next", b"300", b"target", b"0", b"halted", b"")
        await cache.call("HSET", directory, b"t/s", b'[5,"open",200]')
        fields = (b"status", b"open", b"open", OPEN, b"next", b"%d" % NEXT, b"content", b"2", b"messages", b"4")
        await cache.call("HSET", meta, *fields, b"mk", b"2:abc", b"transcript", b"%d" % len(SEQS))
        await cache.call("RPUSH", self.messages + b"2:abc", b"m0", b"m1", b"m2", b"m3")
        await cache.call("SET", self.surface, b"[0]\n[3]\n")
        await cache.call("RPUSH", self.tail, *TAIL)
        entries = b"".join(seq.to_bytes(8, "big") + offset.to_bytes(8, "big") for seq, offset in COMMITS)
        await cache.call("SET", self.offsets, entries)
        await cache.call("RPUSH", self.transcript, *SEQS)


async def both(caches: tuple[Cache, Cache], script: Script, keys: list[bytes], args: list[Argument]) -> Any:
    real, twin = [await cache.run(script, keys, args) for cache in caches]
    assert real == twin, (script.name, args)
    return real


def calls(planted: Planted, chance: random.Random) -> list[tuple[Script, list[bytes], list[Argument]]]:
    gate = planted.gate
    found: list[tuple[Script, list[bytes], list[Argument]]] = []
    for open_id in (OPEN, b"", b"other"):
        for generation in (b"2", b"1"):
            token: list[Argument] = [open_id, generation, b"%d" % chance.randrange(6)]
            same: list[Argument] = [open_id, b"%d" % chance.choice((NEXT, 19)), generation]
            found.append((MESSAGES, [*gate, planted.messages], [1, b"t/s", *token, b"", b"-1", b"-1"]))
            found.append((MESSAGES, [*gate, planted.messages], [1, b"t/s", b"", b"-1", b"-1", *same]))
    for what in (b"head", b"surface"):
        found.append((SESSION, [*gate, planted.surface], [1, b"t/s", what]))
    for _ in range(60):
        span: list[Argument] = [
            chance.randrange(24),
            chance.choice((2**53, chance.randrange(24))),
            chance.randrange(9),
        ]
        found.append((EVENTS, [*gate, planted.tail, planted.offsets], [1, b"t/s", *span]))
        keys = [*gate, planted.tail, planted.offsets, planted.transcript]
        found.append((TRANSCRIPT, keys, [1, b"t/s", *span, chance.randrange(1, 4)]))
    return found


async def test_lua_and_twin_answer_alike(caches: tuple[Cache, Cache], unique: str) -> None:
    planted = Planted(unique)
    for cache in caches:
        await planted.fill(cache)
    for script, keys, args in calls(planted, random.Random(4)):
        await both(caches, script, keys, args)


@pytest.mark.parametrize(
    "missing", ["serving", "cp", "dir", "meta", "messages:2:abc", "tail", "offsets", "transcript"]
)
async def test_they_answer_alike_without_a_key_and_with_one_of_another_type(
    caches: tuple[Cache, Cache], unique: str, missing: str
) -> None:
    planted = Planted(unique)
    for cache in caches:
        await planted.fill(cache)
        await cache.call("DEL", planted.root + missing.encode())
    for script, keys, args in calls(planted, random.Random(5)):
        await both(caches, script, keys, args)
    for cache in caches:
        await cache.call(
            "RPUSH" if missing in ("serving", "offsets") else "SET", planted.root + missing.encode(), b"x"
        )
    for script, keys, args in calls(planted, random.Random(6)):
        await both(caches, script, keys, args)


async def test_another_serving_version_is_told_and_nothing_else(caches: tuple[Cache, Cache], unique: str) -> None:
    planted = Planted(unique)
    for cache in caches:
        await planted.fill(cache)
    assert await both(caches, MESSAGES, [*planted.gate, planted.messages], [2, b"t/s", b"", 0, 0, b"", 0, 0]) == [
        b"1"
    ]


async def test_a_page_holds_the_places_that_cover_it(caches: tuple[Cache, Cache], unique: str) -> None:
    planted = Planted(unique)
    for cache in caches:
        await planted.fill(cache)
    keys = [*planted.gate, planted.tail, planted.offsets]
    seen = await both(caches, EVENTS, keys, [1, b"t/s", 8, 2**53, 3])
    # Seq 8 is in the commit that starts at 4; three events need at most three commits.
    assert seen[4:6] == [15, None]
    assert [int.from_bytes(seen[6][at : at + 8], "big") for at in range(0, len(seen[6]), 16)] == [4, 9, 10]
    seen = await both(caches, EVENTS, keys, [1, b"t/s", 16, 2**53, 2])
    assert seen[5] == TAIL[1:3]
