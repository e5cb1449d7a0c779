"""One atomic step of a projection: checks, then writes, in one script call.

Nothing here knows what is projected. The Lua file says what may be checked and written.
"""

from collections.abc import Sequence
from importlib.resources import files
from typing import Any

import msgspec

from producer.cache import Argument, Cache, Script, TwinData

__all__ = ["COMMIT_SCRIPT", "Call"]


class Call:
    """A call being put together. `owner` of a check: what is not as the worker holds it when the check fails."""

    def __init__(self) -> None:
        self._keys: dict[bytes, int] = {}
        self._checks: list[tuple[str, int, str | bool, str | int | bool]] = []
        self._owners: list[bytes] = []
        self._writes: list[tuple[str | int, ...]] = []
        self._values: list[Argument] = []

    def _key(self, name: bytes) -> int:
        return self._keys.setdefault(name, len(self._keys) + 1)

    def check(self, owner: bytes, command: str, key: bytes, expected: bytes | int | None, field: str = "") -> None:
        """`command` on `key` (and `field` of a hash) must answer `expected`, or nothing is written."""
        # The server's msgpack reads no byte strings; what is compared is a number or a name.
        wanted = (
            False if expected is None else expected.decode("ascii") if isinstance(expected, bytes) else expected
        )
        self._checks.append((command, self._key(key), field or False, wanted))
        self._owners.append(owner)

    def write(self, command: str, key: bytes, values: Sequence[Argument] = ()) -> None:
        """`command` on `key` with `values`, once all checks hold."""
        first = len(self._values) + 2
        self._values += values
        self._writes.append((command, self._key(key), first, len(self._values) + 1))

    def copy(self, key: bytes, source: bytes, first: int, last: int) -> None:
        """Pushes the items `first` to `last` of the list `source` to the list `key`."""
        self._writes.append(("COPY", self._key(key), self._key(source), first, last))

    def publish(self, channel: bytes, payload: bytes) -> None:
        """Sends `payload` on a sharded channel of the same slot."""
        first = len(self._values) + 2
        self._values += (channel, payload)
        self._writes.append(("SPUBLISH", 0, first, first + 1))

    async def run(self, cache: Cache) -> list[bytes]:
        """The owners of the checks that failed (then nothing was written); raises CacheUnavailable."""
        program = msgspec.msgpack.encode((self._checks, self._writes))
        failed = await cache.run(COMMIT_SCRIPT, list(self._keys), [program, *self._values])
        return [self._owners[int(number) - 1] for number in failed]


def _twin(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    assert isinstance(args[0], bytes)
    checks, writes = msgspec.msgpack.decode(args[0])
    failed = [
        number
        for number, (command, key, field, expected) in enumerate(checks, 1)
        if _answer(data, command, keys[key - 1], field) != expected
    ]
    if failed:
        return failed
    for command, key, *rest in writes:
        if command == "COPY":
            source, first, last = rest
            items = data.call("LRANGE", keys[source - 1], first, last)
            if items:
                data.call("RPUSH", keys[key - 1], *items)
        elif key == 0:
            data.call(command, *args[rest[0] - 1 : rest[1]])
        else:
            data.call(command, keys[key - 1], *args[rest[0] - 1 : rest[1]])
    return failed


def _answer(data: TwinData, command: str, key: bytes, field: str | bool) -> Any:
    try:
        found = data.call(command, key, field.encode()) if isinstance(field, str) else data.call(command, key)
    except TypeError:
        return None
    if isinstance(found, bytes):
        return found.decode("ascii", "replace")
    return False if found is None else found


COMMIT_SCRIPT = Script("commit", files("projector").joinpath("lua/commit.lua").read_text(), _twin)
