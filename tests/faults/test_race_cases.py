"""Every given case that needs real servers (`op` race or scale), on Kafka and Redis, and what the cases imply."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from deploy.valkey import ValkeyServer
from gateway.paths import session_path
from gateway.stream import Seen
from producer.log import check_size
from producer.topic import LEDGER_CONFIG
from projector import rewrite, staging
from projector.partition import PartitionProjection
from surfacelog.errors import LedgerError
from surfacelog.events import Draft
from surfacelog.keys import PartitionKeys, SessionKeys, partition_of, record_key, tag_of
from surfacelog.session import draft
from tests.faults.race_cases import GIVEN, OPS, as_draft, bare, kind_of, race_cases
from tests.faults.race_projection import project_all, run_delivery, run_kill
from tests.faults.race_room import TENANT, Node, RaceRoom, open_race_room
from tests.faults.race_scales import run_ids, run_sizes
from tests.faults.race_tail import open_tail, run_tail
from tests.faults.race_writers import run_parallel, run_repeat, run_resume, run_stale
from tests.logwriter import LogWriter

Runner = Callable[[dict[str, Any], RaceRoom], Awaitable[None]]
RUNNERS: dict[str, Runner] = {
    "delivery": run_delivery,
    "ids": run_ids,
    "kill": run_kill,
    "parallel": run_parallel,
    "repeat": run_repeat,
    "resume": run_resume,
    "sizes": run_sizes,
    "stale": run_stale,
    "tail": run_tail,
}
# These drive the projection themselves.
WITHOUT_WORKER = {"delivery", "kill"}
# What a broker takes when nobody says otherwise.
BROKER_BYTES_MAX = 1_048_588


def case_of(kind: str) -> dict[str, Any]:
    """A given case of this kind."""
    found: list[dict[str, Any]] = [json.loads(path.read_bytes()) for path in race_cases()]
    return next(case for case in found if kind_of(case) == kind)


@pytest.fixture
async def room(kafka: str, redis: str, unique: str) -> AsyncIterator[RaceRoom]:
    async with open_race_room(kafka, redis, unique) as opened:
        yield opened


def test_every_race_and_scale_case_is_run_by_some_runner() -> None:
    given = [json.loads(path.read_bytes()) for path in GIVEN.glob("*.json")]
    wanted = {case["id"] for case in given if case["op"] in OPS}
    assert wanted
    assert wanted <= {json.loads(path.read_bytes())["id"] for path in race_cases()}
    assert [path.name for path in race_cases() if kind_of(json.loads(path.read_bytes())) not in RUNNERS] == []


def test_every_runner_has_a_case() -> None:
    assert {kind_of(json.loads(path.read_bytes())) for path in race_cases()} >= set(RUNNERS)


def test_the_page_of_cases_names_every_given_case() -> None:
    page = (GIVEN.parents[2] / "docs" / "cases.md").read_text()
    given = {json.loads(path.read_bytes())["id"] for path in GIVEN.glob("*.json")}
    assert {name for name in given if f"| {name} |" not in page} == set()
    proofs = {name for name in globals() if name.startswith("test_")} | {
        "test_the_case_holds_or_is_skipped_by_name"
    }
    assert {name for name in re.findall(r"`(?:[\w/.]+::)?(test_\w+)", page) if name not in proofs} == set()


@pytest.mark.parametrize("path", race_cases(), ids=lambda path: path.stem)
async def test_the_case_holds_on_real_servers(
    path: Path, kafka: str, redis: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    case = json.loads(path.read_bytes())
    kind = kind_of(case)
    if kind == "kill":
        # Small enough that the rewrite is staged, in a call for every few messages.
        monkeypatch.setattr(rewrite, "STAGE_BYTES_MAX", 0)
        monkeypatch.setattr(staging, "STAGE_BYTES_MAX", 100)
    if kind == "sizes":
        await asyncio.to_thread(make_topic, kafka, unique, BROKER_BYTES_MAX)
    async with open_race_room(kafka, redis, unique, workers=[] if kind in WITHOUT_WORKER else None) as room:
        await RUNNERS[kind](case, room)


def make_topic(kafka: str, name: str, size_bytes_max: int) -> None:
    """A topic that an operator made by hand, with another limit than the ledger's own."""
    config = {**LEDGER_CONFIG, "max.message.bytes": str(size_bytes_max)}
    admin = AdminClient({"bootstrap.servers": kafka})
    admin.create_topics([NewTopic(name, 4, 1, config=config)])[name].result(30)


async def test_records_fetched_ahead_are_seen_to_be_skipped_where_nobody_looks_for_gaps(
    kafka: str, redis: str, unique: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def believe(*_: object) -> bool:
        return True

    monkeypatch.setattr(PartitionProjection, "_is_gap", believe)
    async with open_race_room(kafka, redis, unique, workers=[]) as room:
        with pytest.raises(AssertionError):
            await run_delivery(case_of("delivery"), room)


async def test_a_session_without_events_is_empty_and_one_that_lost_its_keys_is_not(room: RaceRoom) -> None:
    node = await room.new_node()
    await node.create("new")
    assert (await node.get("new", "messages"))["messages"] == []
    assert (await node.get("new", "surface"))["nodes"] == []
    own = own_keys(room, "new")
    assert await room.cache.call("DEL", own.meta) == 1
    for what in ("messages", "surface", "head", "events", "transcript", ""):
        answer = await node.client.get(session_path("new", what), params={"wait_ms": 0})
        assert (answer.status_code, answer.json()["code"]) == (503, "rebuilding"), what
    # Having been looked at is enough for a worker to find it and fold it anew.
    assert (await node.get("new", "messages", wait_ms=5000))["messages"] == []
    done = await node.append("new", bare(case_of("kill")["events"][0]))
    assert done.json()["seq"] == 0


def own_keys(room: RaceRoom, session: str) -> SessionKeys:
    """The session's keys in the cache."""
    key = record_key(TENANT, session)
    tag = tag_of(partition_of(key, room.log.partitions), room.log.partitions, room.log.topic)
    return PartitionKeys(tag, 1).session(key)


async def test_one_key_that_expired_alone_is_never_read_as_empty(room: RaceRoom) -> None:
    node = await room.new_node()
    await node.create("s")
    # More than the tail holds, so that reads need the other keys too.
    for event in case_of("kill")["events"] * 2:
        if not isinstance(event.get("surfaceOp"), dict):
            assert (await node.append("s", bare(event))).status_code == 201
    paths = ("messages", "surface", "head", "events", "transcript", "transcript?from=3", "events?from=20")
    before = {path: without_token(await read(node, path)) for path in paths}
    assert all("code" not in told for told in before.values()), before
    for lost in ("meta", "surface", "messages", "transcript", "tail", "offsets"):
        own = own_keys(room, "s")
        name: bytes = getattr(own, lost)
        if lost == "messages":
            name += await room.cache.call("HGET", own.meta, b"mk")
        # A session as small as this one may have no tail.
        assert await room.cache.call("DEL", name) == 1 or lost == "tail"
        for path in paths:
            told = without_token(await read(node, path))
            assert told == before[path] or told.get("code") == "rebuilding", (lost, path)
        # To be looked at is enough: it heals although nobody can write to it meanwhile.
        async with asyncio.timeout(10):
            while [without_token(await read(node, path)) for path in paths] != list(before.values()):
                await asyncio.sleep(0.05)
    assert (await node.append("s", bare(case_of("kill")["events"][0]))).status_code == 201


async def read(node: Node, path: str) -> dict[str, Any]:
    """A read that is answered at once, with a yes or a no."""
    url = session_path("s", path) + ("&" if "?" in path else "?") + "wait_ms=0"
    found: dict[str, Any] = (await node.client.get(url)).json()
    return found


def without_token(told: dict[str, Any]) -> dict[str, Any]:
    """An answer as far as two of the same state must be the same."""
    return {name: value for name, value in told.items() if name != "token"}


async def test_a_key_is_known_again_after_the_cache_lost_everything(
    kafka: str, redis_server: ValkeyServer, unique: str
) -> None:
    call = case_of("repeat")["calls"][0]
    async with open_race_room(kafka, redis_server.url, unique) as room:
        node = await room.new_node()
        await node.create("s")
        headers = {"Idempotency-Key": call["key"]}
        assert (await node.append("s", call["append"], headers=headers)).json()["seq"] == 0
        await room.cache.call("FLUSHALL")
        answer = await node.append("s", call["append"], headers=headers)
        while answer.status_code == 503:
            await asyncio.sleep(0.05)
            answer = await node.append("s", call["append"], headers=headers)
        assert (answer.status_code, answer.json().get("seq")) == (201, 0), answer.text
        assert len((await room.history("s")).lines) == 1


async def test_a_tail_resumed_from_what_is_not_there_is_told_so_once_and_goes_on(room: RaceRoom) -> None:
    events = case_of("tail")["events"]
    node = await room.new_node()
    epoch = await node.create("s")
    assert (await node.append("s", *map(bare, events))).status_code == 201
    nobody = "00000000-0000-7000-8000-000000000000"
    for seq, last in enumerate(["99", "13", f"{epoch}:14", "another:3", ":3", f"{nobody}:3"], len(events)):
        async with open_tail(node, "s", last) as tail:
            told = await tail.next()
            assert told is not None
            assert (told.event, told.id, told.data) == ("resync", str(seq - 1), {"epoch": epoch, "seq": seq}), last
            await node.append("s", bare(events[0]))
            (new,) = await tail.take(1)
            assert (new.event, new.id) == ("message", str(seq))
    # The client connects again by itself with the id that it was given.
    async with open_tail(node, "s", new.id) as tail:
        assert await tail.take(0) == []


async def test_a_resync_of_an_empty_session_clears_the_id_that_led_to_it(room: RaceRoom) -> None:
    node = await room.new_node()
    epoch = await node.create("s")
    async with open_tail(node, "s", "0") as tail:
        (told,) = await tail.take(1)
    assert (told.event, told.id, told.data) == ("resync", "", {"epoch": epoch, "seq": 0})


async def test_ids_may_carry_the_epoch_of_the_session(room: RaceRoom) -> None:
    events = case_of("tail")["events"]
    node = await room.new_node()
    epoch = await node.create("s")
    await node.append("s", *map(bare, events[:6]))
    async with open_tail(node, "s", query="from=0&epochs=true") as tail:
        assert [frame.id for frame in await tail.take(6)] == [f"{epoch}:{seq}" for seq in range(6)]
    async with open_tail(node, "s", f"{epoch}:3", query="epochs=true") as tail:
        assert [frame.id for frame in await tail.take(2)] == [f"{epoch}:4", f"{epoch}:5"]


async def test_what_is_no_id_at_all_is_refused(room: RaceRoom) -> None:
    node = await room.new_node()
    await node.create("s")
    for last in ["x", "-1", "3:", "1e3", "3 4", "٣", "9" * 17, "a" * 200 + ":1"]:
        answer = await node.client.get(session_path("s", "stream"), headers=[(b"Last-Event-ID", last.encode())])
        assert (answer.status_code, answer.json()["code"]) == (400, "bad-request"), last


async def test_a_tail_behind_the_log_is_not_taken_for_its_end(kafka: str, redis: str, unique: str) -> None:
    events = case_of("tail")["events"]
    async with open_race_room(kafka, redis, unique, workers=[]) as room:
        node = await room.new_node()
        writer = LogWriter(room.log)
        key = await writer.open("s", TENANT, checks="surface")
        await writer.commit(key, *map(as_draft, events[:4]))
        await project_all(room.log, room.cache, writer.partition(key))
        await writer.commit(key, *map(as_draft, events[4:]))
        connected = asyncio.create_task(node.services.streams.start(TENANT, "s", None, Seen(9)))
        await asyncio.sleep(0.2)
        assert not connected.done(), "the state that it waits for is not there yet"
        await project_all(room.log, room.cache, writer.partition(key))
        frames = await connected
        assert (await anext(frames)).startswith(b": stream from 10\n")
        assert (await anext(frames)).startswith(b"id: 10\n")
        await frames.aclose()  # type: ignore[attr-defined]


async def test_a_record_of_exactly_the_limit_passes_and_one_byte_more_does_not(room: RaceRoom) -> None:
    """The limit counts what the log counts: the encoded line, the key and the headers."""
    node = await room.new_node()
    await node.create("s")
    limit = room.log.size_bytes_max
    with pytest.raises(LedgerError) as over:
        await node.producer.append(TENANT, "s", [of_size(limit)])
    overhead = over.value.detail["size_bytes"] - limit
    assert over.value.code == "too-large"
    assert overhead > 0
    with pytest.raises(LedgerError) as one_more:
        await node.producer.append(TENANT, "s", [of_size(limit - overhead + 1)])
    assert one_more.value.detail["size_bytes"] == limit + 1
    assert (await node.producer.append(TENANT, "s", [of_size(limit - overhead)])).seq == 0
    (record,) = [record for record in await room.records("s") if record.value and len(record.value) > limit // 2]
    assert record.key is not None
    assert check_size(record.key, record.headers, record.value or b"", limit) == limit


def of_size(size_bytes: int) -> Draft:
    """An event whose data has so many bytes, most of them in characters of three bytes."""
    shape = len(b'{"text":""}')
    wide, rest = divmod(size_bytes - shape, 3)
    data = b'{"text":"%s%s"}' % ("中".encode() * wide, b"x" * rest)
    return draft("x/large", data, ignorable=True)


async def test_every_size_over_http_on_a_topic_of_the_ledgers_own_is_stored_or_too_large(room: RaceRoom) -> None:
    wanted = case_of("sizes")["generate"]
    node = await room.new_node()
    await node.create("s")
    following, stored = 0, []
    for number, size_bytes in enumerate(wanted["encodedBytes"]):
        unit = wanted["units"][number % len(wanted["units"])]
        text = unit * (size_bytes // (len(json.dumps(unit, ensure_ascii=False).encode()) - 2))
        data = json.loads(json.dumps(wanted["event"]["data"]).replace("<text>", "-"))
        data["message"]["content"][0]["text"] = text
        answer = await node.append("s", wanted["event"] | {"data": data})
        if answer.status_code == 201:
            assert answer.json()["seq"] == following
            stored.append(text)
            following += 1
        else:
            assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
            assert size_bytes > room.log.size_bytes_max
        small = await node.append("s", {"type": "x/small", "data": {}, "ignorable": True})
        assert small.json()["seq"] == following
        following += 1
    assert len(stored) == sum(size < room.log.size_bytes_max for size in wanted["encodedBytes"])
    reader = await room.new_node()
    shown = await reader.get("s", "messages", min_seq=following)
    assert [message["content"][0]["text"] for message in shown["messages"]] == stored
