"""Builds a large message list in a key that nobody reads yet, in calls of bounded size.

A crash in the middle leaves a key that dies by itself; only the commit that follows makes it visible.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from producer.cache import Argument, Cache, Script, TwinData
from projector.delta import MessageList

__all__ = ["STAGE_BYTES_MAX", "STAGE_SCRIPT", "STAGE_VALUES_MAX", "StagingLost", "stage"]

# A megabyte holds up neighbours on the same server for some 4 ms.
STAGE_BYTES_MAX = 1 << 20
STAGE_VALUES_MAX = 500
STAGED_TTL_MS = 600_000


class StagingLost(Exception):
    """The old list or the staged one is not what the worker holds."""


async def stage(cache: Cache, key: bytes, source: bytes, wanted: MessageList) -> int:
    """Builds `wanted` in `key`, taking old messages from the list `source`; its size in bytes."""
    length = size_bytes = 0
    for piece in wanted.pieces:
        if isinstance(piece, tuple):
            place, last = piece
            while place <= last:
                args = (STAGED_TTL_MS, STAGE_BYTES_MAX, length, place, last)
                then, copied = await cache.run(STAGE_SCRIPT, (key, source), args)
                if then <= place:
                    raise StagingLost
                length, place, size_bytes = length + then - place, then, size_bytes + copied
            continue
        for chunk in _chunks(piece):
            args = (STAGED_TTL_MS, STAGE_BYTES_MAX, length, 0, -1)
            then, _ = await cache.run(STAGE_SCRIPT, (key, source), (*args, *chunk))
            if then < 0:
                raise StagingLost
            length, size_bytes = length + len(chunk), size_bytes + sum(map(len, chunk))
    return size_bytes


def _chunks(items: Sequence[bytes]) -> list[list[bytes]]:
    found: list[list[bytes]] = []
    room = 0
    for item in items:
        if not found or len(found[-1]) >= STAGE_VALUES_MAX or room < len(item):
            found.append([])
            room = STAGE_BYTES_MAX
        found[-1].append(item)
        room -= len(item)
    return found


def _twin(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    ttl_ms, size_bytes_max, length, first, last = map(int, args[:5])
    if data.call("LLEN", keys[0]) != length:
        return [-1, 0]
    copied = 0
    while first <= last and copied < size_bytes_max:
        items = data.call("LRANGE", keys[1], first, min(first + 15, last))
        if not items:
            return [-1, copied]
        copied += sum(map(len, items))
        data.call("RPUSH", keys[0], *items)
        first += len(items)
    if args[5:]:
        data.call("RPUSH", keys[0], *args[5:])
    data.call("PEXPIRE", keys[0], ttl_ms)
    return [first, copied]


STAGE_SCRIPT = Script("stage", files("projector").joinpath("lua/stage.lua").read_text(), _twin)
