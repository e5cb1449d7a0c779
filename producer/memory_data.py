"""The data of the in-memory cache: the few Redis commands that the ledger uses, with their answers and expiry.

Values are bytes, lists of bytes and dicts of bytes; a key without content does not exist.
"""

import copy
from collections.abc import Callable
from typing import Any

from producer.cache import Argument

__all__ = ["MemoryData"]

Value = bytes | list[bytes] | dict[bytes, bytes]


def _bytes(value: Argument) -> bytes:
    return value if isinstance(value, bytes) else b"%d" % value


class MemoryData:
    """`clock`: seconds, monotonic. `publish`: called with (channel, payload), answers how many heard it."""

    def __init__(self, clock: Callable[[], float], publish: Callable[[bytes, bytes], int]) -> None:
        self._clock = clock
        self._publish = publish
        self._values: dict[bytes, Value] = {}
        self._expiry: dict[bytes, float] = {}

    def call(self, command: str, *args: Argument) -> Any:
        """One command; answers as redis-py does without decoding. An unknown command is a KeyError."""
        return _COMMANDS[command](self, *args)

    def copied(self) -> tuple[dict[bytes, Value], dict[bytes, float]]:
        """All that is kept, to be put back with `replace`."""
        return copy.deepcopy(self._values), dict(self._expiry)

    def replace(self, values: dict[bytes, Value], expiry: dict[bytes, float]) -> None:
        """Takes `values` in the place of all that is kept."""
        self._values = copy.deepcopy(values)
        self._expiry = dict(expiry)

    def keys(self) -> list[bytes]:
        """Every key that exists now, sorted."""
        return sorted(key for key in list(self._values) if self._find(key) is not None)

    def _find(self, key: bytes) -> Value | None:
        ends = self._expiry.get(key)
        if ends is not None and ends <= self._clock():
            self._drop(key)
        return self._values.get(key)

    def _drop(self, key: bytes) -> bool:
        self._expiry.pop(key, None)
        return self._values.pop(key, None) is not None

    def _string(self, key: bytes) -> bytes:
        value = self._find(key)
        return b"" if value is None else _expected(value, bytes)

    def _list(self, key: bytes) -> list[bytes]:
        value = self._find(key)
        return [] if value is None else _expected(value, list)

    def _hash(self, key: bytes) -> dict[bytes, bytes]:
        value = self._find(key)
        return {} if value is None else _expected(value, dict)

    def _get(self, key: bytes) -> bytes | None:
        value = self._find(key)
        return None if value is None else _expected(value, bytes)

    def _set(self, key: bytes, value: Argument, *options: Argument) -> bool | None:
        flags = [_bytes(option).upper() for option in options]
        if b"NX" in flags and self._find(key) is not None:
            return None
        self._values[key] = _bytes(value)
        self._expiry.pop(key, None)
        if b"PX" in flags:
            self._expiry[key] = self._clock() + int(flags[flags.index(b"PX") + 1]) / 1000
        return True

    def _setnx(self, key: bytes, value: Argument) -> int:
        return int(bool(self._set(key, value, b"NX")))

    def _del(self, *keys: bytes) -> int:
        return sum(self._find(key) is not None and self._drop(key) for key in keys)

    def _exists(self, *keys: bytes) -> int:
        return sum(self._find(key) is not None for key in keys)

    def _append(self, key: bytes, value: Argument) -> int:
        grown = self._string(key) + _bytes(value)
        self._values[key] = grown
        return len(grown)

    def _strlen(self, key: bytes) -> int:
        return len(self._string(key))

    def _getrange(self, key: bytes, start: Argument, stop: Argument) -> bytes:
        return self._string(key)[_span(int(start), int(stop), len(self._string(key)))]

    def _hset(self, key: bytes, *pairs: Argument) -> int:
        _some(pairs)
        fields = self._hash(key)
        before = len(fields)
        for field, value in zip(pairs[::2], pairs[1::2], strict=True):
            fields[_bytes(field)] = _bytes(value)
        self._values[key] = fields
        return len(fields) - before

    def _hget(self, key: bytes, field: Argument) -> bytes | None:
        return self._hash(key).get(_bytes(field))

    def _hmget(self, key: bytes, *fields: Argument) -> list[bytes | None]:
        found = self._hash(key)
        return [found.get(_bytes(field)) for field in fields]

    def _hgetall(self, key: bytes) -> dict[bytes, bytes]:
        return dict(self._hash(key))

    def _hdel(self, key: bytes, *fields: Argument) -> int:
        _some(fields)
        found = self._hash(key)
        gone = sum(found.pop(_bytes(field), None) is not None for field in fields)
        if not found:
            self._drop(key)
        return gone

    def _hlen(self, key: bytes) -> int:
        return len(self._hash(key))

    def _rpush(self, key: bytes, *values: Argument) -> int:
        _some(values)
        items = self._list(key)
        items.extend(map(_bytes, values))
        self._values[key] = items
        return len(items)

    def _llen(self, key: bytes) -> int:
        return len(self._list(key))

    def _lrange(self, key: bytes, start: Argument, stop: Argument) -> list[bytes]:
        items = self._list(key)
        return items[_span(int(start), int(stop), len(items))]

    def _lindex(self, key: bytes, index: Argument) -> bytes | None:
        items = self._list(key)
        return items[int(index)] if -len(items) <= int(index) < len(items) else None

    def _lpop(self, key: bytes, count: Argument) -> list[bytes] | None:
        items = self._list(key)
        if not items:
            return None
        gone = items[: int(count)]
        del items[: int(count)]
        if not items:
            self._drop(key)
        return gone

    def _ltrim(self, key: bytes, start: Argument, stop: Argument) -> bool:
        kept = self._lrange(key, start, stop)
        if kept:
            self._values[key] = kept
        else:
            self._drop(key)
        return True

    def _pexpire(self, key: bytes, ttl_ms: Argument) -> int:
        if self._find(key) is None:
            return 0
        self._expiry[key] = self._clock() + int(ttl_ms) / 1000
        return 1

    def _persist(self, key: bytes) -> int:
        return int(self._find(key) is not None and self._expiry.pop(key, None) is not None)

    def _pttl(self, key: bytes) -> int:
        if self._find(key) is None:
            return -2
        ends = self._expiry.get(key)
        return -1 if ends is None else int((ends - self._clock()) * 1000)

    def _spublish(self, channel: bytes, payload: Argument) -> int:
        return self._publish(channel, _bytes(payload))


def _expected(value: Value, kind: type[Any]) -> Any:
    if not isinstance(value, kind):
        raise TypeError("WRONGTYPE: the key holds another kind of value")
    return value


def _some(values: tuple[Argument, ...]) -> None:
    # A server refuses these, and a script that meets it is left half-done.
    if not values:
        raise TypeError("wrong number of arguments")


def _span(start: int, stop: int, length: int) -> slice:
    low = max(start + length if start < 0 else start, 0)
    high = stop + length if stop < 0 else stop
    return slice(low, max(high + 1, low))


_COMMANDS: dict[str, Callable[..., Any]] = {
    name.removeprefix("_").upper(): getattr(MemoryData, name)
    for name in (
        *("_get", "_set", "_setnx", "_del", "_exists", "_append", "_strlen", "_getrange"),
        *("_hset", "_hget", "_hmget", "_hgetall", "_hdel", "_hlen"),
        *("_rpush", "_llen", "_lrange", "_lindex", "_lpop", "_ltrim"),
        *("_pexpire", "_persist", "_pttl", "_spublish"),
    )
}
