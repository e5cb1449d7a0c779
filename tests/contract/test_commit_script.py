"""The commit script and its twin: the same random call gives equal answers and equal keys on both."""

import random
from itertools import count
from typing import Any

import pytest

from producer.cache import Cache
from producer.memory_cache import MemoryCache
from producer.redis_cache import open_redis
from projector import commit
from projector.commit import LENGTH_COMMANDS, Call

CALLS = 300
STRINGS, LISTS, HASHES = "s", "l", "h"
READS: dict[str, tuple[str, tuple[int, ...]]] = {
    STRINGS: ("GET", ()),
    LISTS: ("LRANGE", (0, -1)),
    HASHES: ("HGETALL", ()),
}
COUNTS = {STRINGS: "STRLEN", LISTS: "LLEN", HASHES: "HLEN"}
VALUES = (b"", b"0", b"-1", b"\x00", b"\r\n", b"\xff\xfe", "ключ".encode(), b"$3\r\nabc\r\n", b"x" * 700)


class Room:
    """Keys of one slot, by the kind of what they hold, and random calls over them."""

    def __init__(self, unique: str, seed: int) -> None:
        self.random = random.Random(seed)
        self.keys = {
            kind: [b"{%s}:%s%d:\xe9" % (unique.encode(), kind.encode(), n) for n in range(2)] for kind in READS
        }

    def any_key(self) -> tuple[str, bytes]:
        """A kind and a key of it."""
        kind = self.random.choice(tuple(READS))
        return kind, self.random.choice(self.keys[kind])

    def values(self, least: int = 1) -> list[bytes | int]:
        """A few values, sometimes more than a script may take from its stack at once."""
        many = self.random.choice((1, 2, 3, 8)) if self.random.random() < 0.95 else 1100
        return [self.random.choice((*VALUES, self.random.randrange(10**12))) for _ in range(max(least, many))]

    async def checks(self, call: Call, cache: Cache) -> None:
        """Checks of what `cache` holds, and now and then of what it does not."""
        for number in range(self.random.randrange(4)):
            kind, key = self.any_key()
            off = self.random.random() < 0.03
            owner = b"%d" % number
            if kind == HASHES and self.random.random() < 0.5:
                found = await cache.call("HGET", key, b"plain")
                call.check(owner, "HGET", key, b"other" if off else found, "plain")
            else:
                # Of another kind the server answers an error, which equals nothing.
                command = COUNTS[self.random.choice(tuple(READS))] if off else COUNTS[kind]
                call.check(owner, command, key, await cache.call(COUNTS[kind], key))
        if self.random.random() < 0.5:
            chosen = [self.random.choice(self.keys[kind_of(command)]) for command in LENGTH_COMMANDS]
            lengths = [
                await cache.call(command, key) for command, key in zip(LENGTH_COMMANDS, chosen, strict=True)
            ]
            if self.random.random() < 0.05:
                lengths[self.random.randrange(9)] += 1
            call.check_lengths(b"lengths", chosen, lengths)

    def write(self, call: Call) -> None:
        """One write that the keys' kinds allow."""
        kind, key = self.any_key()
        dice = self.random.random()
        if dice < 0.15:
            call.write("DEL", key)
        elif dice < 0.2:
            call.write("PEXPIRE", key, (600_000,))
        elif dice < 0.25:
            call.write("PERSIST", key)
        elif kind == STRINGS:
            command = self.random.choice(("SET", "SETNX", "APPEND"))
            call.write(command, key, self.values()[:1])
        elif kind == HASHES:
            fields = self.values()
            if self.random.random() < 0.3:
                call.write("HDEL", key, fields)
            else:
                call.write("HSET", key, [b"plain", b"p", *(part for field in fields for part in (field, field))])
        elif dice < 0.35:
            call.write("LTRIM", key, (-3, -1))
        elif dice < 0.45:
            call.write("LPOP", key, (self.random.randrange(1, 5),))
        elif dice < 0.55:
            source = self.random.choice(self.keys[LISTS])
            call.write("RPUSH", source, self.values(3))
            call.copy(key, source, 0, 2)
        else:
            call.write("RPUSH", key, self.values())


def kind_of(command: str) -> str:
    """What a command that counts expects."""
    return next(kind for kind, found in COUNTS.items() if found == command)


async def content(cache: Cache, room: Room) -> dict[bytes, tuple[Any, bool]]:
    """Of every key what it holds, and whether it dies."""
    return {
        key: (await cache.call(READS[kind][0], key, *READS[kind][1]), await cache.call("PTTL", key) > 0)
        for kind, keys in room.keys.items()
        for key in keys
    }


@pytest.mark.parametrize("seed", range(3))
async def test_the_script_and_its_twin_write_the_same(
    redis: str, unique: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    staged, refused = 0, 0
    # So that some calls are staged whole, some in part, and some not at all.
    monkeypatch.setattr(commit, "VALUES_MAX", 24)
    monkeypatch.setattr(commit, "BYTES_MAX", 3000)
    monkeypatch.setattr(commit, "PART_BYTES", 256)
    server, twin = await open_redis(redis), MemoryCache()
    try:
        for number in range(CALLS):
            found: list[tuple[list[bytes], str]] = []
            for cache in (server, twin):
                room, call = Room(unique, seed * CALLS + number), Call()
                # What a refused call has staged stays for a while, so no name comes twice.
                names = map(str, count(number * CALLS))
                # The seed is the same and so is what the caches hold, so the call is the same.
                await room.checks(call, cache)
                for _ in range(room.random.randrange(1, 24)):
                    room.write(call)
                failed = await call.run(cache, names.__next__)
                found.append((failed, next(names)))
            assert found[0] == found[1], number
            assert await content(server, room) == await content(twin, room), number
            refused += bool(found[0][0])
            staged += found[0][1] != str(number * CALLS)
    finally:
        await server.close()
    assert 0 < refused < CALLS / 2
    assert 0 < staged < CALLS
