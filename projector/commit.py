"""One atomic step of a projection: checks, then writes, in one script call.

Nothing here knows what is projected. The Lua file says what may be checked and written. Where there is too much
for one call the values go ahead into keys that nobody reads, and the call that follows shows all of it at once.
"""

from collections.abc import Callable, Sequence
from importlib.resources import files
from itertools import accumulate, islice
from typing import Any

import msgspec

from producer.cache import Argument, Cache, Script, TwinData
from projector.delta import MessageList
from projector.staging import stage

__all__ = ["COMMIT_SCRIPT", "LENGTH_COMMANDS", "PARTITION", "Call"]

# The owner of checks that concern the partition; a record key always has a slash.
PARTITION = b"*"
# What one call writes; what is more goes before it, into keys that nobody reads. So many values, and a megabyte,
# take a server some 5 ms.
VALUES_MAX = 10_000
# A little more than the megabyte at which a fold is cut: ordinary traffic is never staged.
BYTES_MAX = (1 << 20) + (1 << 16)
PART_BYTES = 1 << 18
# What gives the length of a session's keys, in the order of `Held.lengths`.
LENGTH_COMMANDS = ("LLEN", "STRLEN", "LLEN", "LLEN", "STRLEN", "HLEN", "HLEN", "HLEN", "HLEN")
Check = tuple[str, int, str | bool, str | int | bool] | tuple[str, int, Sequence[int]]
STAGEABLE = frozenset({"RPUSH", "HSET", "HDEL", "APPEND", "SET"})


class Call:
    """A call being put together. `owner` of a check: what is not as the worker holds it when the check fails."""

    def __init__(self) -> None:
        self._names: list[bytes] = []
        self._keys: dict[bytes, int] = {}
        self._checks: list[Check] = []
        self._owners: list[bytes] = []
        # The command, its key's number, and either values or what else the script is told.
        self._writes: list[tuple[str, int, Sequence[Argument], tuple[int | str, ...]]] = []

    def _key(self, name: bytes) -> int:
        number = self._keys.get(name)
        if number is None:
            self._names.append(name)
            number = self._keys[name] = len(self._names)
        return number

    def check(self, owner: bytes, command: str, key: bytes, expected: bytes | int | None, field: str = "") -> None:
        """`command` on `key` (and `field` of a hash) must answer `expected`, or nothing is written."""
        # The server's msgpack reads no byte strings; what is compared is a number or a name.
        wanted = (
            False if expected is None else expected.decode("ascii") if isinstance(expected, bytes) else expected
        )
        self._checks.append((command, self._key(key), field or False, wanted))
        self._owners.append(owner)

    def check_lengths(self, owner: bytes, keys: Sequence[bytes], expected: Sequence[int]) -> None:
        """As `check`, with `LENGTH_COMMANDS` on as many keys."""
        names, numbers = self._names, self._keys
        first = len(names) + 1
        # Their numbers follow one another, even of a key that has one already.
        names += keys
        numbers.update(zip(keys, range(first, first + len(keys)), strict=True))
        self._checks.append(("LENGTHS", first, expected))
        self._owners.append(owner)

    def write(self, command: str, key: bytes, values: Sequence[Argument] = ()) -> None:
        """`command` on `key` with `values`, once all checks hold."""
        self._writes.append((command, self._key(key), values, ()))

    def copy(self, key: bytes, source: bytes, first: int, last: int) -> None:
        """Pushes the items `first` to `last` of the list `source` to the list `key`."""
        self._writes.append(("COPY", self._key(key), (), (self._key(source), first, last)))

    def publish(self, channel: bytes, payload: bytes) -> None:
        """Sends `payload` on a sharded channel of the same slot."""
        self._writes.append(("SPUBLISH", 0, (channel, payload), ()))

    async def run(self, cache: Cache, nonce: Callable[[], str] | None = None) -> list[bytes]:
        """The owners of the checks that failed (then nothing was written). A call that is too large is staged if
        there is a `nonce` to name the keys with. Raises CacheUnavailable, or StagingLost: nothing was written."""
        writes, texts = self._pack()
        blob = b"".join(texts)
        if nonce is not None and (len(texts) > VALUES_MAX or len(blob) > BYTES_MAX):
            await self._lighten(cache, nonce)
            writes, texts = self._pack()
            blob = b"".join(texts)
        program = msgspec.msgpack.encode((LENGTH_COMMANDS, self._checks, writes, list(map(len, texts))))
        # As one argument, whatever their number: the server reads and hands on each argument by itself.
        failed = await cache.run(COMMIT_SCRIPT, self._names, [program, blob])
        return [self._owners[int(number) - 1] for number in failed]

    def _pack(self) -> tuple[list[tuple[str | int, ...]], list[bytes]]:
        """What the script is told of the writes, and their values."""
        values: list[Argument] = []
        writes: list[tuple[str | int, ...]] = []
        for command, key, own, rest in self._writes:
            if rest:
                writes.append((command, key, *rest))
                continue
            writes.append((command, key, len(own)))
            values += own
        return writes, _texts(values)

    async def _lighten(self, cache: Cache, nonce: Callable[[], str]) -> None:
        """Stages the heaviest writes until the rest is small enough for one call."""
        weights = [(len(values), _size_bytes(values)) for _, _, values, _ in self._writes]
        count, size_bytes = sum(weight[0] for weight in weights), sum(weight[1] for weight in weights)
        names = self._names
        heaviest = sorted(range(len(weights)), key=lambda place: -max(weights[place][0], weights[place][1] >> 10))
        for place in heaviest:
            command, key, values, rest = self._writes[place]
            if rest or command not in STAGEABLE:
                continue
            parts = _parts(command, values)
            staged = b"%s:%s" % (names[key - 1], nonce().encode())
            await stage(cache, staged, staged, MessageList([parts]))
            self.check(PARTITION, "LLEN", staged, len(parts))
            # A list that takes the place of a deleted one is renamed, whatever its length; never over what an
            # earlier write put there.
            before = next((other[0] for other in reversed(self._writes[:place]) if other[1] == key), "")
            fresh = command == "RPUSH" and before == "DEL"
            told = (self._key(staged),) if fresh else (self._key(staged), command, len(parts))
            self._writes[place] = ("TAKE" if fresh else "FEED", key, (), told)
            count, size_bytes = count - weights[place][0], size_bytes - weights[place][1]
            if count <= VALUES_MAX and size_bytes <= BYTES_MAX:
                return


def _texts(values: Sequence[Argument]) -> list[bytes]:
    return [value if isinstance(value, bytes) else b"%d" % value for value in values]


def _size_bytes(values: Sequence[Argument]) -> int:
    # Lists of numbers are long and have nothing else in them.
    if not values or isinstance(values[0], int):
        return 8 * len(values)
    try:
        return sum(map(len, values))  # type: ignore[arg-type]
    except TypeError:
        return sum(len(value) if isinstance(value, bytes) else 8 for value in values)


def _parts(command: str, values: Sequence[Argument]) -> list[bytes]:
    """The values as items of a list; a string in pieces, since it may be larger than a call."""
    texts = _texts(values)
    if command not in ("APPEND", "SET"):
        return texts
    return [text[at : at + PART_BYTES] for text in texts for at in range(0, len(text), PART_BYTES)]


def _twin(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    program, blob = args
    assert isinstance(program, bytes)
    assert isinstance(blob, bytes)
    commands, checks, writes, sizes = msgspec.msgpack.decode(program)
    failed = [number for number, check in enumerate(checks, 1) if not _holds(data, keys, commands, check)]
    if failed:
        return failed
    ends = list(accumulate(sizes))
    values = iter([blob[end - size : end] for end, size in zip(ends, sizes, strict=True)])
    for command, key, *rest in writes:
        name = keys[key - 1] if key else b""
        if command == "COPY":
            source, first, last = rest
            items = data.call("LRANGE", keys[source - 1], first, last)
            if items:
                data.call("RPUSH", name, *items)
        elif command in ("FEED", "TAKE"):
            _feed(data, name, keys[rest[0] - 1], rest[1] if command == "FEED" else "RPUSH")
        elif not key:
            data.call(command, *islice(values, rest[0]))
        else:
            data.call(command, name, *islice(values, rest[0]))
    return failed


def _holds(data: TwinData, keys: Sequence[bytes], commands: Sequence[str], check: Sequence[Any]) -> bool:
    if check[0] == "LENGTHS":
        _, first, lengths = check
        names = keys[first - 1 : first - 1 + len(commands)]
        found = [_answer(data, *asked, False) for asked in zip(commands, names, strict=True)]
        return found == list(lengths)
    command, key, field, expected = check
    return bool(_answer(data, command, keys[key - 1], field) == expected)


def _feed(data: TwinData, key: bytes, source: bytes, command: str) -> None:
    items = data.call("LRANGE", source, 0, -1)
    data.call("DEL", source)
    if command == "SET":
        data.call("DEL", key)
    if command in ("APPEND", "SET"):
        items = [b"".join(items)]
    data.call("APPEND" if command == "SET" else command, key, *items)


def _answer(data: TwinData, command: str, key: bytes, field: str | bool) -> Any:
    try:
        found = data.call(command, key, field.encode()) if isinstance(field, str) else data.call(command, key)
    except TypeError:
        return None
    if isinstance(found, bytes):
        return found.decode("ascii", "replace")
    return False if found is None else found


COMMIT_SCRIPT = Script("commit", files("projector").joinpath("lua/commit.lua").read_text(), _twin)
