"""`verify` finds what was planted: a flipped bit, a swapped or missing record, a changed key; and nothing else."""

import asyncio
import inspect
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import msgspec
import pytest

from gateway.cli.parked import parked
from gateway.cli.verify import _print, verify, verify_sessions
from gateway.tenant import LOCAL_TENANT
from producer.log import LogRecord
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from projector.refold import retry_session
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from surfacelog.errors import ProtocolError
from surfacelog.keys import partition_of
from surfacelog.session import draft
from tests.logwriter import LogWriter
from tests.poison import POISON, Killed, kill_at
from tests.projection_reader import partition_keys, view_of


class Ledger:
    """A projected log in memory, whose records a test may change behind everybody's back."""

    def __init__(self) -> None:
        self.topic = MemoryTopic(partitions=2)
        self.log = MemoryLog(self.topic)
        self.cache = MemoryCache()
        self.writer = LogWriter(self.log, seed=5)
        self.keys: list[bytes] = []

    async def fill(self) -> None:
        self.keys = [await self.writer.open(f"s{number}") for number in range(6)]
        for _ in range(25):
            for key in self.keys:
                await self.writer.step(key)
        await self.project()

    async def project(self) -> None:
        await Worker(self.log, self.cache, ProjectorSettings()).once()

    def rewrite(self, change: Callable[[list], None]) -> None:  # type: ignore[type-arg]
        """`change` gets the records of partition 0 and changes the list."""
        records = self.topic.slice(0, 0, 10_000, 1 << 30)
        end = self.topic.end(0)
        change(records)
        self.topic.truncate_from(0, 0)
        for record in records:
            self.topic.append(0, record.key, record.headers, record.value, record.time)
        assert self.topic.end(0) <= end


@pytest.fixture
async def ledger() -> Ledger:
    made = Ledger()
    await made.fill()
    return made


async def test_an_untouched_ledger_has_no_differences(ledger: Ledger) -> None:
    found = await verify_sessions(ledger.log, ledger.cache)
    assert found.differences == []
    assert found.sessions == 6
    assert found.records == ledger.topic.end(0) + ledger.topic.end(1)


async def test_a_flipped_bit_in_the_log_is_found_at_the_record_that_no_longer_fits(ledger: Ledger) -> None:
    planted: list[bytes] = []

    def flip(records: list) -> None:  # type: ignore[type-arg]
        for index, record in enumerate(records):
            if b"said" in record.value:
                records[index] = msgspec.structs.replace(record, value=record.value.replace(b"said", b"sahd", 1))
                planted.append(record.key)
                return

    ledger.rewrite(flip)
    found = await verify_sessions(ledger.log, ledger.cache)
    assert [difference.session.encode() for difference in found.differences] == planted
    assert found.differences[0].what in ("commit", "chain")


async def test_swapped_records_are_found(ledger: Ledger) -> None:
    def swap(records: list) -> None:  # type: ignore[type-arg]
        key = records[0].key
        own = [index for index, record in enumerate(records) if record.key == key][3:5]
        records[own[0]], records[own[1]] = records[own[1]], records[own[0]]

    ledger.rewrite(swap)
    found = await verify_sessions(ledger.log, ledger.cache)
    assert len(found.differences) == 1
    assert found.differences[0].what == "commit"


async def test_a_missing_record_is_found(ledger: Ledger) -> None:
    key = ledger.topic.slice(0, 0, 1, 1 << 30)[0].key

    def drop(records: list) -> None:  # type: ignore[type-arg]
        del records[len(records) // 2]

    ledger.rewrite(drop)
    found = await verify_sessions(ledger.log, ledger.cache)
    assert key is not None
    assert found.differences


async def _flip_message(ledger: Ledger, key: bytes) -> None:
    own = partition_keys(ledger.log, key).session(key)
    pointer = (await view_of(ledger.cache, ledger.log, key)).meta[b"mk"]
    items = await ledger.cache.call("LRANGE", own.messages + pointer, 0, -1)
    await ledger.cache.call("DEL", own.messages + pointer)
    items[2] = items[2].replace(b"text", b"tixt")
    await ledger.cache.call("RPUSH", own.messages + pointer, *items)


async def _lose_offsets(ledger: Ledger, key: bytes) -> None:
    await ledger.cache.call("DEL", partition_keys(ledger.log, key).session(key).offsets)


async def _change_claim(ledger: Ledger, key: bytes) -> None:
    await ledger.cache.call("HSET", partition_keys(ledger.log, key).session(key).meta, b"floor", b"77")


async def _forget_in_directory(ledger: Ledger, key: bytes) -> None:
    await ledger.cache.call("HDEL", partition_keys(ledger.log, key).directory, key)


async def _tear_last_place(ledger: Ledger, key: bytes) -> None:
    await ledger.cache.call("APPEND", partition_keys(ledger.log, key).session(key).offsets, b"\x00\x00")


@pytest.mark.parametrize(
    "damage", [_flip_message, _lose_offsets, _change_claim, _forget_in_directory, _tear_last_place]
)
async def test_damage_in_the_cache_is_found_in_its_session(
    ledger: Ledger, damage: Callable[[Ledger, bytes], Awaitable[None]]
) -> None:
    await damage(ledger, ledger.keys[3])
    found = await verify_sessions(ledger.log, ledger.cache)
    assert [difference.session.encode() for difference in found.differences] == [ledger.keys[3]]
    assert (await verify_sessions(ledger.log, ledger.cache, [ledger.keys[3]])).differences == found.differences
    assert (await verify_sessions(ledger.log, ledger.cache, [ledger.keys[2]])).differences == []


async def test_a_ledger_under_load_has_no_differences(ledger: Ledger) -> None:
    worker = Worker(ledger.log, ledger.cache, ProjectorSettings(fetch_wait_ms=2))
    running = asyncio.create_task(worker.run())

    async def write() -> None:
        for _ in range(30):
            for key in ledger.keys:
                await ledger.writer.step(key)
            await asyncio.sleep(0.002)

    writing = asyncio.create_task(write())
    runs = 0
    while not writing.done():
        assert (await verify_sessions(ledger.log, ledger.cache)).differences == []
        runs += 1
    worker.stop()
    await asyncio.gather(running, writing)
    assert runs > 1


async def test_lifecycle_tells_what_does_not_nest(ledger: Ledger) -> None:
    key = ledger.keys[0]
    await ledger.writer.commit(key, draft("step/end", {"turn": 9, "step": 9}))
    await ledger.project()
    found = await verify_sessions(ledger.log, ledger.cache, [key], lifecycle=True)
    assert found.differences == []
    assert found.lifecycle[key.decode()]


@pytest.fixture
def killing(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], None]]:
    """Whoever folds a record with `POISON` in it ends; calling the fixture mends it."""

    with monkeypatch.context() as patch:
        kill_at(patch)
        yield patch.undo


async def park_killer(ledger: Ledger) -> bytes:
    key = ledger.keys[2]
    await ledger.writer.say(key, POISON.decode())
    await ledger.writer.say(key, "behind it")
    for _ in range(10):
        try:
            await ledger.project()
        except Killed:
            continue
        return key
    raise AssertionError("every worker ends")


async def test_a_record_that_ends_who_folds_it_is_passed_over_and_its_session_told_as_parked(
    ledger: Ledger, killing: Callable[[], None], capsys: pytest.CaptureFixture[str]
) -> None:
    key = await park_killer(ledger)
    found = await verify_sessions(ledger.log, ledger.cache)
    assert (found.differences, found.sessions, found.parked, found.waiting) == ([], 6, 1, 2)
    assert found.records == ledger.topic.end(0) + ledger.topic.end(1)
    _print(found)
    assert "1 parked (2 records wait and were not folded" in capsys.readouterr().out
    assert (await verify_sessions(ledger.log, ledger.cache, [ledger.keys[1]])).waiting == 0
    # What is served of it, from before its fault, is compared as ever.
    await _flip_message(ledger, key)
    found = await verify_sessions(ledger.log, ledger.cache)
    assert [(difference.session.encode(), difference.what) for difference in found.differences] == [
        (key, "messages")
    ]


async def test_a_session_that_is_retried_while_it_is_verified_is_folded_whole(
    ledger: Ledger, killing: Callable[[], None]
) -> None:
    key = await park_killer(ledger)
    site = make_site(ledger.log, ledger.cache, partition_of(key, 2), ProjectorSettings())
    read = ledger.log.read

    async def read_and_retry(*asked: Any) -> list[LogRecord]:
        records = await read(*asked)
        ledger.log.read = read  # type: ignore[method-assign]
        killing()
        assert (await retry_session(site, key)).status == "open"
        return records

    ledger.log.read = read_and_retry  # type: ignore[method-assign]
    found = await verify_sessions(ledger.log, ledger.cache, [key], lifecycle=True)
    assert (found.differences, found.parked, found.waiting) == ([], 0, 0)


async def test_a_session_that_the_log_does_not_park_there_is_told(
    ledger: Ledger, killing: Callable[[], None]
) -> None:
    key = await park_killer(ledger)
    keys = partition_keys(ledger.log, key)
    entry = (await view_of(ledger.cache, ledger.log, key)).entry
    assert entry is not None
    # Parked too late: then what is served lacks a record that was accepted.
    moved = msgspec.structs.replace(entry, at=entry.at + 10_000)
    await ledger.cache.call("HSET", keys.directory, key, moved.encode())
    killing()
    found = await verify_sessions(ledger.log, ledger.cache)
    assert [difference.session.encode() for difference in found.differences] == [key]


@pytest.mark.parametrize("command", [verify, parked])
def test_operators_look_first_at_the_tenant_that_is_served_without_credentials(
    command: Callable[..., int],
) -> None:
    assert inspect.signature(command).parameters["tenant"].default == LOCAL_TENANT


def test_a_session_that_nobody_has_is_no_healthy_one(
    kafka: str, redis: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SURFACELOG_TOPIC", unique)
    monkeypatch.setenv("SURFACELOG_PARTITIONS", "2")
    assert verify(kafka=kafka, redis=redis) == 0
    with pytest.raises(ProtocolError, match="has session 'nosuch' of tenant 'local'") as refusal:
        verify(kafka=kafka, redis=redis, session="nosuch")
    assert refusal.value.code == "no-session"
