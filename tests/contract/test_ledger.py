"""The Python API: one suite for the ledger in this process and for the same ledger behind HTTP."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import pytest
import uvicorn
from msgspec import Raw

from gateway.app import create_app
from gateway.ledger import Ledger
from gateway.ledger_direct import DirectDoor
from gateway.ledger_session import event
from gateway.services import Services, services_for
from gateway.settings import GatewaySettings
from producer.memory_log import MemoryLog
from surfacelog.errors import ContractError, LedgerError, ProtocolError
from tests.contract.ledger_room import Room, open_room

USER = {"id": "u", "role": "user", "content": [{"type": "text", "text": "hi"}]}


@pytest.fixture
async def room() -> AsyncIterator[Room]:
    async with open_room() as opened:
        yield opened


@asynccontextmanager
async def served(services: Services) -> AsyncIterator[str]:
    """A gateway on a real socket; its address."""
    app: Any = create_app(services)
    server = uvicorn.Server(uvicorn.Config(app, port=0, lifespan="off", log_level="error", access_log=False))
    running = asyncio.ensure_future(server.serve())
    while not server.started:
        await asyncio.sleep(0.005)
    yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    services.streams.close()
    server.should_exit = True
    await running


@pytest.fixture(params=["direct", "http"])
async def ledger(request: pytest.FixtureRequest, room: Room) -> AsyncIterator[Ledger]:
    producer = await room.producer()
    log = MemoryLog(room.topic)
    services = services_for(
        GatewaySettings(stream_heartbeat_ms=100), log, room.cache, producer, now_ms=lambda: 1_760_000_000_000
    )
    async with AsyncExitStack() as stack:
        stack.push_async_callback(services.close)
        if request.param == "direct":
            yield Ledger(DirectDoor(services, "local"), patience_s=5)
        else:
            url = await stack.enter_async_context(served(services))
            yield await stack.enter_async_context(Ledger.connect(url, patience_s=5))


async def code_of(work: object) -> str:
    with pytest.raises(LedgerError) as refusal:
        await work  # type: ignore[misc]
    return refusal.value.code


async def test_what_is_appended_is_what_the_model_sees(ledger: Ledger):
    session = await ledger.open("chat/1", title="A chat")
    done = await session.append("user/message", USER, surface_op="append")
    assert (done.seq, session.seq) == (0, 1)
    assert await session.messages() == [USER]
    await session.append("user/message", {**USER, "id": "v"}, surface_op="append")
    assert await session.messages() == [USER, {**USER, "id": "v"}]
    assert await session.surface() == [0, 1]


async def test_messages_follow_a_compaction(ledger: Ledger):
    session = await ledger.open("s")
    await session.append_many(
        [event("user/message", {**USER, "id": str(n)}, surface_op="append") for n in range(3)]
    )
    assert [m["id"] for m in await session.messages()] == ["0", "1", "2"]
    replace = {"op": "replace", "startSeq": 0, "endSeq": 1}
    await session.append("user/message", {**USER, "id": "sum"}, surface_op=replace, source_event_seqs=[0, 1])
    assert [m["id"] for m in await session.messages()] == ["sum", "2"]
    assert [seen.data["id"] for seen in await session.transcript()] == ["0", "1", "2"]


async def test_the_callers_list_is_the_callers_own(ledger: Ledger):
    session = await ledger.open("s")
    await session.append("user/message", USER, surface_op="append")
    found = await session.messages()
    found[0]["id"] = "changed"
    found.clear()
    assert await session.messages() == [USER]


async def test_opening_a_session_again_finds_it(ledger: Ledger):
    first = await ledger.open("s")
    await first.append("x/note", {}, ignorable=True)
    again = await ledger.open("s")
    assert again.seq == 1
    assert await code_of(ledger.create("s")) == "session-exists"
    made = await ledger.create()
    assert made.id != "s"


async def test_many_that_open_the_same_session_at_once_all_get_it(ledger: Ledger):
    opened = await asyncio.gather(*(ledger.open("s") for _ in range(8)))
    assert {session.id for session in opened} == {"s"}


async def test_refusals_have_the_same_codes_and_details_everywhere(ledger: Ledger):
    session = await ledger.open("s")
    await session.append("user/message", USER, surface_op="append")
    with pytest.raises(ContractError) as broken:
        await session.append("user/message", USER)
    assert broken.value.code == "surface-op-required"
    with pytest.raises(ProtocolError) as conflict:
        await session.append("user/message", USER, surface_op="append", expected_seq=0)
    assert (conflict.value.code, conflict.value.detail["next_seq"]) == ("seq-conflict", 1)
    assert await code_of(ledger.session("nobody").append("x/y", 1, ignorable=True)) == "no-session"
    assert await code_of(session.append("x/y", object(), ignorable=True)) == "bad-request"
    await session.delete()
    assert await code_of(ledger.open("s")) == "gone"


async def test_data_comes_back_byte_for_byte(ledger: Ledger):
    session = await ledger.open("s")
    data = b'{"b":1,"a":[12345678901234567890,"\\ud800"]}'
    await session.append("x/y", Raw(data), ignorable=True, time=7)
    seen = [seen async for seen in session.events()]
    assert [(s.type, s.seq, s.time, s.raw, s.ignorable) for s in seen] == [("x/y", 0, 7, data, True)]
    assert seen[0].data["a"][0] == 12345678901234567890


async def test_a_key_makes_a_repeat_harmless_across_processes(ledger: Ledger, room: Room):
    session = await ledger.open("s")
    done = await session.append("user/message", USER, surface_op="append", key="turn-1")
    again = await ledger.session("s").append("user/message", USER, surface_op="append", key="turn-1")
    assert (again.seq, again.commit_id) == (done.seq, done.commit_id)
    assert await code_of(
        session.append("user/message", {**USER, "id": "w"}, surface_op="append", key="turn-1")
    ) == ("key-reused")


async def test_an_append_whose_verdict_is_late_is_repeated_and_lands_once(ledger: Ledger):
    session = await ledger.open("s")
    answers = await asyncio.gather(*(session.append("x/n", n, ignorable=True, timeout_ms=2) for n in range(20)))
    assert sorted(answer.seq for answer in answers) == list(range(20))
    assert len([seen async for seen in session.events()]) == 20


async def test_a_claim_is_carried_by_the_handle_that_holds_it(ledger: Ledger):
    session, other = await ledger.open("s"), await ledger.open("s")
    held = await session.claim("run-1", lease_ms=1000)
    assert (held.epoch, held.owner) == (1, "run-1")
    assert await code_of(other.append("x/n", 1, ignorable=True)) == "fenced"
    await session.append("x/n", 1, ignorable=True)
    head = await other.head()
    assert head.claim is not None
    assert (head.claim.owner, head.claim.lease_ms) == ("run-1", 1000)
    await other.claim("run-2", takeover=True)
    assert await code_of(session.append("x/n", 2, ignorable=True)) == "fenced"
    await other.release()
    assert (await ledger.session("s").append("x/n", 3, ignorable=True)).seq == 1


async def test_a_fork_goes_on_from_the_event_that_was_chosen(ledger: Ledger):
    session = await ledger.open("s", vocabulary=["my/note"])
    await session.append("user/message", USER, surface_op="append")
    await session.append("my/note", {"n": 1})
    child = await session.fork(0, "child", title="Another try")
    assert await child.messages() == [USER]
    assert [seen.type async for seen in child.events()] == ["user/message", "session/end-seed"]
    await child.append("my/note", {"n": 2})
    assert (await child.resume("run-1")).closers == 0


async def test_a_tail_shows_every_event_once_old_and_new(ledger: Ledger):
    session = await ledger.open("s")
    await session.append("x/n", 0, ignorable=True)
    seen: list[int] = []

    async def follow() -> None:
        async for found in session.tail(0):
            seen.append(found.data)
            if len(seen) == 10:
                return

    following = asyncio.ensure_future(follow())
    for number in range(1, 10):
        await session.append("x/n", number, ignorable=True)
    await asyncio.wait_for(following, 5)
    assert seen == list(range(10))
