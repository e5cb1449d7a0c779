"""However much one step writes, no call is large, and nothing of it is seen before the last call."""

from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec
import pytest

from producer.cache import Argument, Cache, Script
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from projector.settings import ProjectorSettings
from projector.worker import Worker
from surfacelog.session import draft
from tests.logwriter import LogWriter, user
from tests.projection_reader import assert_equals_truth, partition_keys, view_of

EVENTS = 10_000


@pytest.fixture
def log(unique: str) -> MemoryLog:
    return MemoryLog(MemoryTopic(partitions=1, topic=unique))


class Seen(NamedTuple):
    """One script call. `words`: keys and arguments. `values`: written by it. `shown`: the next seq just before."""

    script: str
    words: int
    values: int
    size_bytes: int
    shown: int


def assert_small(calls: Sequence[Seen]) -> None:
    assert max(call.words for call in calls) < 1000
    assert max(call.values for call in calls) <= 10_000
    assert max(call.size_bytes for call in calls) <= (1 << 20) + (1 << 17)


async def calls_of(cache: Cache, log: MemoryLog, key: bytes) -> list[Seen]:
    """Projects; every call."""
    calls: list[Seen] = []
    run = cache.run

    async def watched(script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        if script.name in ("commit", "stage"):
            shown = await run_view()
            size_bytes = sum(len(arg) for arg in args if isinstance(arg, bytes))
            values = len(args)
            if script.name == "commit":
                assert isinstance(args[0], bytes)
                values = len(msgspec.msgpack.decode(args[0])[3])
            calls.append(Seen(script.name, len(keys) + len(args), values, size_bytes, shown))
        return await run(script, keys, args)

    async def run_view() -> int:
        cache.run = run  # type: ignore[method-assign]
        try:
            view = await view_of(cache, log, key)
        finally:
            cache.run = watched  # type: ignore[method-assign]
        return -1 if view.state is None else view.state.next_seq

    cache.run = watched  # type: ignore[method-assign]
    try:
        await Worker(log, cache, ProjectorSettings()).once()
    finally:
        cache.run = run  # type: ignore[method-assign]
    return calls


async def test_a_commit_of_ten_thousand_events_is_written_in_small_calls(cache: Cache, log: MemoryLog) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    await writer.say(key, "before")
    await Worker(log, cache, ProjectorSettings()).once()
    await writer.commit(key, *(user(f"event {number}") for number in range(EVENTS)))
    calls = await calls_of(cache, log, key)
    assert_small(calls)
    assert {call.shown for call in calls} == {1}
    await assert_equals_truth(cache, writer, key)
    await writer.say(key, "after")
    await Worker(log, cache, ProjectorSettings()).once()
    await assert_equals_truth(cache, writer, key)


async def test_a_long_session_is_folded_anew_in_small_calls(cache: Cache, log: MemoryLog) -> None:
    writer = LogWriter(log)
    key = await writer.open("s")
    for _ in range(2):
        headers = (draft("request/header", {"header": {"tools": [tool(n)]}}) for n in range(600))
        await writer.commit(key, *headers, *(user("x" * 90) for _ in range(EVENTS - 600)))
    for number in range(100):
        await writer.say(key, str(number))
    await Worker(log, cache, ProjectorSettings()).once()
    await assert_equals_truth(cache, writer, key)
    keys = partition_keys(log, key)
    await cache.call("DEL", keys.session(key).surface)
    await cache.call("HSET", keys.damaged, key, b"1")
    calls = await calls_of(cache, log, key)
    assert len(calls) > 20
    assert_small(calls)
    assert {call.shown for call in calls} == {-1}
    await assert_equals_truth(cache, writer, key)
    await writer.say(key, "after")
    await Worker(log, cache, ProjectorSettings()).once()
    await assert_equals_truth(cache, writer, key)
    for piece in ("transcript", "offsets", "headers", "tools"):
        assert await cache.call("PTTL", getattr(keys.session(key), piece)) == -1, piece


@pytest.mark.parametrize("text", ["short", "x" * 50_000])
async def test_ordinary_traffic_takes_one_call_a_step(log: MemoryLog, text: str) -> None:
    cache = MemoryCache()
    writer = LogWriter(log)
    keys = [await writer.open(f"s{number}") for number in range(60)]
    for number in range(240):
        if number % 10 and text == "short":
            await writer.step(keys[number * 7 % 60])
        else:
            await writer.say(keys[number * 7 % 60], text)
    calls = await calls_of(cache, log, keys[0])
    assert {call.script for call in calls} == {"commit"}
    assert_small(calls)
    for key in keys:
        await assert_equals_truth(cache, writer, key)


def tool(number: int) -> dict[str, Any]:
    return {"name": f"tool{number}", "description": "does it", "parameters": {"type": "object"}}
