"""The in-memory session: what it takes, what it keeps, and that a refusal leaves nothing."""

import math
from typing import Any

import pytest
from msgspec import UNSET

from surfacelog.errors import ContractError
from surfacelog.events import read_event
from surfacelog.header import Header
from surfacelog.lossless import read
from surfacelog.session import Session, draft
from surfacelog.surface import Surface
from tests.unit.acts import TOOL, assistant, header, image, log, offload, result, said, user


def test_an_append_returns_its_seq_and_keeps_the_data() -> None:
    session = Session()
    assert session.append("turn/start", {"turn": 1}, time=5) == 0
    raw = b'{"role":"user","content":[ ],"n":1.0}'
    assert session.append("user/message", raw, surface_op="append", time=3) == 1
    assert session.append("todo/write", [1]) == 2
    assert [event.time for event in session.events] == [5, 3, 3]
    assert bytes(session.events[1].data) == raw
    assert session.transcript == (1,)
    assert [(message.seq, message.json) for message in session.messages] == [(1, raw)]
    assert session.next_seq == 3
    assert session.surface.nodes == [1]


def test_the_header_decides_the_rules() -> None:
    session = Session(Header(id="s", created_at=9, contract="v0", checks="paired", vocabulary=("a/b",)))
    session.append("a/b", None)
    assert session.events[0].time == 9
    with pytest.raises(ContractError, match="type-unknown"):
        session.append("system/message", {"message": {"content": []}}, surface_op="append")
    with pytest.raises(ContractError, match="call-unknown"):
        session.append_many([result("x", contract="v0")])


def test_data_that_was_checked_before_is_decided_alike() -> None:
    """Long data is recognised by its bytes: by appending, by loading, and by planning, in any session."""
    pictures = [image() for _ in range(2000)]
    drafts = [
        header(*({**TOOL, "name": f"tool{number}"} for number in range(200))),
        user(*pictures),
        offload((1, list(range(1500)))),
        assistant(*(f"c{number}" for number in range(200))),
        result("c0", *pictures),
    ]
    first = Session()
    for offered in drafts:
        first.append_draft(offered)
    for _ in range(2):
        again = Session()
        again.append_many(drafts)
        loaded = Session.load(first.lines)
        assert list(first.lines) == list(again.lines) == list(loaded.lines)
        assert first.surface.entries == again.surface.entries == loaded.surface.entries
        planned = Surface()
        for line in first.lines:
            planned.apply(planned.plan(read_event(line)))
        assert planned.entries == first.surface.entries
        assert planned.headers == first.surface.headers


@pytest.mark.parametrize(
    ("value", "code"),
    [
        (math.nan, "number-range"),
        ({"a": [math.inf]}, "number-range"),
        (-0.0, "number-negative-zero"),
        ({"a": -0.0}, "number-negative-zero"),
        (10**5000, "number-range"),
        (object(), "json-invalid"),
        ({"a": {1, 2}.__iter__()}, "json-invalid"),
        (b'{"a":-0}', "number-negative-zero"),
        (b"{", "json-invalid"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_values_without_a_lossless_form_are_refused(value: Any, code: str) -> None:
    session = Session()
    with pytest.raises(ContractError) as refusal:
        session.append("todo/write", value)
    assert refusal.value.code == code
    assert session.next_seq == 0


def test_deep_values_are_refused_without_a_crash() -> None:
    deep: Any = 1
    for _ in range(100_000):
        deep = [deep]
    with pytest.raises(ContractError, match="depth-exceeded"):
        Session().append("todo/write", deep)
    while type(deep) is list:
        deep = deep.pop()


@pytest.mark.parametrize(
    "value", [None, True, {"a": None, "b": 2**70, "c": "\ud800", "d": (1, 2)}, "é", 0.1, 1e300]
)
def test_values_come_back_as_they_were(value: Any) -> None:
    session = Session()
    session.append("todo/write", value)
    back = read(bytes(session.events[0].data))
    assert back == ({**value, "d": [1, 2]} if isinstance(value, dict) else value)


def test_a_null_surface_op_is_there_and_invalid() -> None:
    with pytest.raises(ContractError, match="surface-op-invalid"):
        Session().append("user/message", {"content": []}, surface_op=None)
    with pytest.raises(ContractError, match="surface-op-required"):
        Session().append("user/message", {"content": []}, surface_op=UNSET)


def test_many_are_appended_together_or_not_at_all() -> None:
    session = Session(Header(id="s", created_at=0, checks="paired"))
    session.append_many([user(said("u"))])
    before = list(session.lines)
    with pytest.raises(ContractError) as refusal:
        session.append_many([assistant("a"), result("a"), user(said("s"), over=(0, 0)), result("a")])
    assert refusal.value.code == "call-unknown"
    assert refusal.value.detail["index"] == 3
    assert (session.lines, session.transcript, session.surface.nodes) == (before, (0,), [0])
    assert session.surface.replace_generation == 0
    assert session.append_many([assistant("a"), result("a")]) == range(1, 3)


def test_bad_data_is_told_with_its_index_too() -> None:
    with pytest.raises(ContractError) as refusal:
        Session().append_many([log("todo/write"), draft("todo/write", b"NaN")])
    assert refusal.value.detail["index"] == 1


def test_a_loaded_session_goes_on_where_it_stopped() -> None:
    session = Session()
    session.append_many([user(said("u")), assistant("a"), result("a"), user(said("s"), over=(0, 0))])
    loaded = Session.load(session.lines, session.header)
    assert loaded.messages == session.messages
    assert loaded.transcript == session.transcript
    assert loaded.append_many([log("turn/end")]) == session.append_many([log("turn/end")])
    with pytest.raises(ContractError, match="seq-not-contiguous"):
        Session.load(list(session.lines)[1:])
