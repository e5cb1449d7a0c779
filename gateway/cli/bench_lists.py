"""Two ways to keep one generation of messages, side by side: a list of them, and one string that they are appended
to, with a second string that says where each one ends. The figures of `surfacelog bench lists`."""

import statistics
import time
from collections.abc import Callable, Sequence
from itertools import accumulate
from typing import Any, Protocol, cast

import msgspec
from redis import Redis
from redis.commands.core import Script

from gateway.cli.bench_servers import bench_redis
from producer.ids import mint_id

__all__ = ["lists_figures"]

NEWEST = 4
REPLACED = 20
BLOCKS = 5
Figures = dict[str, Any]

LIST_APPEND = "redis.call('RPUSH', KEYS[1], ARGV[1])"
LIST_READ = "return redis.call('LRANGE', KEYS[1], ARGV[1], -1)"
# As commit.lua copies what stays: in steps, since unpack has a bound.
LIST_REPLACE = """
local function copy(from, to)
  for first = from, to, 500 do
    redis.call('RPUSH', KEYS[2], unpack(redis.call('LRANGE', KEYS[1], first, math.min(first + 499, to))))
  end
end
redis.call('RPUSH', KEYS[2], ARGV[1])
copy(tonumber(ARGV[2]), redis.call('LLEN', KEYS[1]) - 1)
"""
STRING_APPEND = """
local size = redis.call('APPEND', KEYS[1], ARGV[1] .. ',')
redis.call('APPEND', KEYS[2], struct.pack('>I4', size))
"""
STRING_READ = """
local first = tonumber(ARGV[1])
if first == 0 then return redis.call('GETRANGE', KEYS[1], 0, -2) end
local ends = redis.call('GETRANGE', KEYS[2], first * 4 - 4, first * 4 - 1)
return redis.call('GETRANGE', KEYS[1], struct.unpack('>I4', ends), -2)
"""
# The ends come with the call: a worker that knows them spares the server a look at each.
STRING_REPLACE = """
local ends = redis.call('GETRANGE', KEYS[2], ARGV[2] * 4 - 4, ARGV[2] * 4 - 1)
local rest = redis.call('GETRANGE', KEYS[1], struct.unpack('>I4', ends), -1)
redis.call('SET', KEYS[3], ARGV[1] .. ',' .. rest)
redis.call('SET', KEYS[4], ARGV[3])
"""


class _Form(Protocol):
    """`keys`: all that it keeps; `fresh`: the same after a replace."""

    keys: list[str]
    fresh: list[str]

    def append(self, message: bytes) -> None: ...

    def read(self, first: int) -> bytes:
        """The messages from place `first` on, as they stand in an answer's array."""
        ...

    def replace(self, messages: Sequence[bytes]) -> None:
        """The first messages (a half of them, `REPLACED` at most) by the first one, into the `fresh` keys; what
        stays never leaves the server."""
        ...

    def rebuild(self, messages: Sequence[bytes]) -> None:
        """All of them sent anew, into the `fresh` keys."""
        ...


class _List:
    def __init__(self, client: Redis, name: str) -> None:
        self.keys, self.fresh = [f"{name}:list"], [f"{name}:list:fresh"]
        self._client = client
        self._append, self._read, self._replace = _scripts(client, LIST_APPEND, LIST_READ, LIST_REPLACE)

    def append(self, message: bytes) -> None:
        self._append(self.keys, [message])

    def read(self, first: int) -> bytes:
        return b",".join(self._read(self.keys, [first]))

    def replace(self, messages: Sequence[bytes]) -> None:
        self._replace(self.keys + self.fresh, [messages[0], _replaced(messages)])

    def rebuild(self, messages: Sequence[bytes]) -> None:
        self._client.rpush(self.fresh[0], *messages)


class _String:
    def __init__(self, client: Redis, name: str) -> None:
        self.keys = [f"{name}:string", f"{name}:ends"]
        self.fresh = [f"{key}:fresh" for key in self.keys]
        self._client = client
        self._append, self._read, self._replace = _scripts(client, STRING_APPEND, STRING_READ, STRING_REPLACE)

    def append(self, message: bytes) -> None:
        self._append(self.keys, [message])

    def read(self, first: int) -> bytes:
        return bytes(self._read(self.keys, [first]))

    def replace(self, messages: Sequence[bytes]) -> None:
        count = _replaced(messages)
        ends = _ends((messages[0], *messages[count:]))
        self._replace(self.keys + self.fresh, [messages[0], count, ends])

    def rebuild(self, messages: Sequence[bytes]) -> None:
        self._client.mset({self.fresh[0]: b",".join(messages) + b",", self.fresh[1]: _ends(messages)})


def _ends(messages: Sequence[bytes]) -> bytes:
    sizes = accumulate(len(message) + 1 for message in messages)
    return b"".join(size.to_bytes(4, "big") for size in sizes)


def _replaced(messages: Sequence[bytes]) -> int:
    return min(REPLACED, len(messages) // 2)


def _scripts(client: Redis, *texts: str) -> list[Script]:
    return [client.register_script(text) for text in texts]


def lists_figures(message_bytes: int = 400, rounds: int = 500) -> Figures:
    """For 20 and for 1,000 messages: memory in bytes, and of each act the median at the client and the time that
    the server was busy with one, µs. `payload`: the messages alone."""
    with bench_redis() as url:
        client = Redis.from_url(url)
        try:
            return {str(count): _measure(client, count, message_bytes, rounds) for count in (20, 1000)}
        finally:
            client.close()


def _measure(client: Redis, count: int, message_bytes: int, rounds: int) -> Figures:
    messages = [_message(number, message_bytes) for number in range(count)]
    name = f"{{bench-{mint_id()}}}"
    forms: dict[str, _Form] = {"list": _List(client, name), "string": _String(client, name)}
    figures: Figures = {"payload": sum(map(len, messages))}
    try:
        for form in forms.values():
            for message in messages:
                form.append(message)
        figures["memory"] = _memory(client, forms, messages)
        for act, work in _acts(messages).items():
            figures[act] = _times(client, forms, work, rounds)
    finally:
        client.delete(*(key for form in forms.values() for key in (*form.keys, *form.fresh)))
    return figures


def _acts(messages: Sequence[bytes]) -> dict[str, Callable[[_Form], object]]:
    """Appends come last, since they make the others' data grow."""
    return {
        "read_all": lambda form: form.read(0),
        "read_newest": lambda form: form.read(len(messages) - NEWEST),
        "replace": lambda form: form.replace(messages),
        "rebuild": lambda form: form.rebuild(messages),
        "append": lambda form: form.append(messages[0]),
    }


def _memory(client: Redis, forms: dict[str, _Form], messages: Sequence[bytes]) -> Figures:
    """Appended one by one, and written anew by a replace; both forms must answer alike."""
    found: Figures = {}
    for first in (0, len(messages) - NEWEST):
        assert len({form.read(first) for form in forms.values()}) == 1
    for form in forms.values():
        form.replace(messages)
    replaced = cast(list[bytes], client.lrange(forms["list"].fresh[0], 0, -1))
    assert client.get(forms["string"].fresh[0]) == b",".join(replaced) + b","
    client.delete(forms["list"].fresh[0])
    for kind, form in forms.items():
        form.rebuild(messages)
        for how, keys in (("appended", form.keys), ("rebuilt", form.fresh)):
            for key in keys:
                part = key.removesuffix(":fresh").rsplit(":", 1)[1]
                found[f"{kind}_{how}" + ("" if part == kind else f"_{part}")] = client.memory_usage(key, 0)
    return found


def _times(client: Redis, forms: dict[str, _Form], work: Callable[[_Form], object], rounds: int) -> Figures:
    """Both forms in turn, block by block, so that whatever else the machine does meets both."""
    waits: dict[str, list[float]] = {kind: [] for kind in forms}
    busy = dict.fromkeys(forms, 0.0)
    for _ in range(BLOCKS):
        for kind, form in forms.items():
            spent = -_server_s(client)
            for _ in range(max(rounds // BLOCKS, 1)):
                client.unlink(*form.fresh)
                started = time.perf_counter()
                work(form)
                waits[kind].append(time.perf_counter() - started)
            busy[kind] += spent + _server_s(client)
    return {
        kind: {"p50": statistics.median(waits[kind]) * 1e6, "server": busy[kind] / len(waits[kind]) * 1e6}
        for kind in forms
    }


def _server_s(client: Redis) -> float:
    """Of its main thread; some servers count only all of them."""
    told = client.info("cpu")
    names = ("used_cpu_user_main_thread", "used_cpu_sys_main_thread")
    if names[0] not in told:
        names = ("used_cpu_user", "used_cpu_sys")
    return float(told[names[0]]) + float(told[names[1]])


def _message(number: int, size_bytes: int) -> bytes:
    block = {"type": "text", "text": f"message {number} ".ljust(size_bytes - 60, ".")}
    return msgspec.json.encode({"role": "user", "content": [block]})
