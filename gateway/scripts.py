"""The reading scripts, each a Lua file behind the common gate, with its twin for the in-memory cache.

What each takes and answers is said in its Lua file.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

from producer.cache import Argument, Script, TwinData
from surfacelog.entries import PLACE_BYTES

__all__ = ["EVENTS", "MESSAGES", "SESSION", "TRANSCRIPT"]

_CHECKPOINT = (b"next", b"target", b"halted")
_META = (b"status", b"open", b"next", b"content", b"messages", b"mk")


def _quiet(data: TwinData, command: str, *args: Argument) -> Any:
    """A key of another type reads as missing."""
    try:
        return data.call(command, *args)
    except TypeError:
        return None


def _gate(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> list[Any]:
    serving = _quiet(data, "GET", keys[0])
    if serving != b"%d" % int(args[0]):
        return [serving]
    return [
        serving,
        _quiet(data, "HMGET", keys[1], *_CHECKPOINT),
        _quiet(data, "HGET", keys[2], args[1]),
        _quiet(data, "HMGET", keys[3], *_META),
    ]


def _closed(seen: list[Any]) -> bool:
    return len(seen) < 4 or not seen[3] or seen[3][0] is None


def _place_of(data: TwinData, key: bytes, entries: int, seq: int) -> int:
    low, high = 0, entries - 1
    while low < high:
        middle = (low + high + 1) // 2
        found = data.call("GETRANGE", key, middle * PLACE_BYTES, middle * PLACE_BYTES + 7)
        low, high = (middle, high) if int.from_bytes(found, "big") <= seq else (low, middle - 1)
    return low


def _messages(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    seen = _gate(data, keys, args)
    if _closed(seen):
        return seen
    _, open_id, seq, generation, _, pointer = seen[3]
    if [open_id, seq, generation] == list(args[5:8]):
        return [*seen, -1]
    start = int(args[4]) if [open_id, generation] == list(args[2:4]) else 0
    return [*seen, start, _quiet(data, "LRANGE", keys[4] + (pointer or b""), start, -1)]


def _session(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    seen = _gate(data, keys, args)
    if _closed(seen):
        return seen
    flat = [part for pair in data.call("HGETALL", keys[3]).items() for part in pair]
    return [*seen, flat, _quiet(data, "GET", keys[4]) if args[2] == b"surface" else None]


def _events(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    seen = _gate(data, keys, args)
    if _closed(seen):
        return seen
    next_seq = int(seen[3][2])
    first = int(args[2])
    tail = next_seq - (_quiet(data, "LLEN", keys[4]) or 0)
    stop = min(int(args[3]), first + int(args[4]), next_seq)
    if first >= stop:
        return [*seen, tail, [], b""]
    if first >= tail:
        return [*seen, tail, data.call("LRANGE", keys[4], first - tail, stop - tail - 1), b""]
    place = _place_of(data, keys[5], (_quiet(data, "STRLEN", keys[5]) or 0) // PLACE_BYTES, first)
    last = (place + stop - first) * PLACE_BYTES - 1
    return [*seen, tail, None, _quiet(data, "GETRANGE", keys[5], place * PLACE_BYTES, last) or b""]


def _transcript(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    seen = _gate(data, keys, args)
    if _closed(seen):
        return seen
    first, stop, limit, window = (int(arg) for arg in args[2:6])
    tail = int(seen[3][2]) - (_quiet(data, "LLEN", keys[4]) or 0)
    seqs: list[bytes] = []
    if first < stop:
        seqs = _quiet(data, "LRANGE", keys[6], first, min(stop, first + limit) - 1) or []
    bodies: list[bytes] = []
    entries = b""
    if seqs:
        low, high = int(seqs[0]), int(seqs[-1])
        if high >= tail:
            bodies = data.call("LRANGE", keys[4], max(low - tail, 0), high - tail)
        if low < tail:
            count = (_quiet(data, "STRLEN", keys[5]) or 0) // PLACE_BYTES
            place = _place_of(data, keys[5], count, low)
            last = _place_of(data, keys[5], count, min(high, tail - 1))
            end = min(last + 1, place + window) * PLACE_BYTES - 1
            entries = _quiet(data, "GETRANGE", keys[5], place * PLACE_BYTES, end) or b""
    whole = _quiet(data, "LLEN", keys[6]) == int(_quiet(data, "HGET", keys[3], b"transcript") or 0)
    return [*seen, tail, seqs, bodies, entries, 1 if whole else None]


def _lua(name: str) -> str:
    folder = files("gateway").joinpath("lua")
    return folder.joinpath("gate.lua").read_text() + folder.joinpath(f"{name}.lua").read_text()


MESSAGES = Script("read-messages", _lua("messages"), _messages)
SESSION = Script("read-session", _lua("session"), _session)
EVENTS = Script("read-events", _lua("events"), _events)
TRANSCRIPT = Script("read-transcript", _lua("transcript"), _transcript)
