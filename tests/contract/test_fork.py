"""Forks and resumes over the shipped twins: copies that any machine continues, closers under a claim."""

import asyncio

import msgspec
import pytest
from msgspec import Raw

from producer import forking
from surfacelog.errors import LedgerError
from surfacelog.events import Draft
from tests.contract.ledger_room import Room, T, header, note, simulated, user


def event(kind: str, data: object, surface: bool = False) -> Draft:
    raw = Raw(msgspec.json.encode(data))
    return Draft(kind, raw, surface_op=Raw(b'"append"')) if surface else Draft(kind, raw)


def open_call(call: str) -> list[Draft]:
    """A turn cut off while a tool is at work."""
    where = {"turn": 1, "step": 1}
    message = {
        "id": f"a-{call}",
        "role": "assistant",
        "content": [{"type": "tool-call", "id": call, "name": "read", "arguments": "{}"}],
        "source": {"kind": "model", "provider": "p", "model": "m"},
    }
    return [
        event("turn/start", {"turn": 1}),
        event("step/start", where),
        event("assistant/message", where | {"message": message, "stream": []}, surface=True),
        event("tool/call", where | {"callId": call, "name": "read", "arguments": "{}"}),
    ]


async def code_of(work: object) -> str:
    with pytest.raises(LedgerError) as refusal:
        await work  # type: ignore[misc]
    return refusal.value.code


@simulated()
async def test_a_fork_has_the_parents_prefix_byte_for_byte_then_its_mark_and_closers(room: Room):
    producer = await room.producer()
    await producer.create(T, header("p", checks="paired", vocabulary=("my/note",)))
    await producer.append(T, "p", [user("hi"), event("my/note", {"a": 1})])
    await producer.append(T, "p", open_call("c1"))
    await producer.append(T, "p", [user("after the cut")])
    made = await producer.fork(T, "p", header("c", title="a child"), 5)
    lines = room.lines("c")
    assert lines[:6] == room.lines("p")[:6]
    kinds = [msgspec.json.decode(line)["type"] for line in lines[6:]]
    assert kinds == ["session/end-seed", "tool/result", "step/end", "turn/end"]
    assert made.next_seq == len(lines) == 10
    state, _ = room.replay("c")
    assert state.header is not None
    assert (state.header.parent_session, state.header.inherited_event_count) == ("p", 6)
    assert (state.header.checks, state.header.vocabulary, state.header.title) == (
        "paired",
        ("my/note",),
        "a child",
    )
    assert (await producer.append(T, "c", [user("on my own")])).seq == 10


@simulated()
async def test_nothing_but_the_copy_passes_while_a_session_is_forking(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("p"))
    await producer.append(T, "p", [user("a")])
    await producer.create(T, header("c", parent_session="p", inherited_event_count=1))
    for writer in (producer, other):
        assert await code_of(writer.append(T, "c", [user("x")])) == "forking"
        assert await code_of(writer.claim(T, "c", "bob")) == "stale-claim"
    await other.fork(T, "p", header("c"), 0)
    assert (await producer.append(T, "c", [user("x")])).seq == 2


@simulated()
async def test_a_copy_left_half_way_is_finished_by_another_machine(room: Room, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forking, "CHUNK_EVENTS", 3)
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("p"))
    await producer.append(T, "p", [note(str(n)) for n in range(20)])
    copying = asyncio.ensure_future(producer.fork(T, "p", header("c"), 19))
    while room.replay("c")[0].next_seq < 6:
        await asyncio.sleep(0.0001)
    copying.cancel()
    assert room.replay("c")[0].forking
    made = await other.fork(T, "p", header("c"), 19)
    assert room.lines("c")[:20] == room.lines("p")
    assert made.next_seq == 21
    again = await producer.fork(T, "p", header("c"), 19)
    assert (again.open_id, again.next_seq) == (made.open_id, made.next_seq)


@simulated()
async def test_two_machines_that_copy_the_same_fork_make_one_child(room: Room, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(forking, "CHUNK_EVENTS", 2)
    producers = [await room.producer() for _ in range(3)]
    await producers[0].create(T, header("p"))
    await producers[0].append(T, "p", [note(str(n)) for n in range(15)])
    made = await asyncio.gather(*(p.fork(T, "p", header("c"), 14) for p in producers))
    assert len({m.open_id for m in made}) == 1
    assert room.lines("c")[:15] == room.lines("p")
    assert room.replay("c")[0].next_seq == 16


@pytest.mark.parametrize(
    ("parent", "child", "boundary", "code"),
    [
        ("p", "c", 1, "bad-request"),
        ("p", "c", -1, "bad-request"),
        ("nobody", "c", 0, "no-session"),
        ("p", "other", 0, "session-exists"),
        ("deleted", "c", 0, "gone"),
    ],
)
@simulated()
async def test_a_fork_that_cannot_be_is_refused(room: Room, parent: str, child: str, boundary: int, code: str):
    producer = await room.producer()
    for name in ("p", "other", "deleted"):
        await producer.create(T, header(name))
        await producer.append(T, name, [user("a")])
    await producer.delete(T, "deleted")
    assert await code_of(producer.fork(T, parent, header(child), boundary)) == code
    assert room.records("c") == []


@simulated()
async def test_a_resume_closes_what_was_left_open_and_only_once(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s", checks="paired"))
    first = await producer.claim(T, "s", "run-1")
    await producer.append(T, "s", [user("go"), *open_call("c1")], fence=first.fence)
    assert await code_of(other.resume(T, "s", "run-2")) == "fenced"
    done = await other.resume(T, "s", "run-2", takeover=True)
    kinds = [msgspec.json.decode(line)["type"] for line in room.lines("s")[5:]]
    assert kinds == ["tool/result", "step/end", "turn/end"]
    assert (done.seq, done.closers, done.next_seq) == (5, 3, 8)
    again = await other.resume(T, "s", "run-2")
    assert (again.closers, again.next_seq) == (0, 8)
    assert await code_of(producer.append(T, "s", [user("zombie")], fence=first.fence)) == "fenced"
    assert await code_of(other.append(T, "s", [user("zombie")], fence=done.claim.fence)) == "fenced"
    assert (await producer.append(T, "s", [user("b")], fence=again.claim.fence)).seq == 8


@simulated()
async def test_runs_that_resume_at_once_leave_one_set_of_closers(room: Room):
    producers = [await room.producer() for _ in range(4)]
    await producers[0].create(T, header("s", checks="paired"))
    await producers[0].append(T, "s", [user("go"), *open_call("c1")])
    done = await asyncio.gather(
        *(p.resume(T, "s", f"run-{n}", takeover=True) for n, p in enumerate(producers)), return_exceptions=True
    )
    assert all(isinstance(d, LedgerError) and d.code == "fenced" for d in done if isinstance(d, BaseException))
    kinds = [msgspec.json.decode(line)["type"] for line in room.lines("s")[5:]]
    assert kinds == ["tool/result", "step/end", "turn/end"]
