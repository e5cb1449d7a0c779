"""Closers after a crash: what is added, in which order, and that it is enough."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog.events import Event
from surfacelog.formats import line_of
from surfacelog.header import Header
from surfacelog.lifecycle import Nesting, report
from surfacelog.repair import repair
from surfacelog.session import Session
from tests.unit.story import assistant, result, story

OPEN: list[Any] = [("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1})]
CALL_A = ("tool/call", {"turn": 1, "step": 1, "callId": "A"})


def kinds(events: list[Event]) -> list[str]:
    return [event.type for event in events]


def test_nothing_open_needs_nothing() -> None:
    assert repair([]) == []
    assert repair(story(("todo/write", {}))) == []


def test_started_and_unstarted_calls_are_told_apart() -> None:
    closers = repair(story(*OPEN, assistant("A", "B"), CALL_A))
    assert kinds(closers) == ["tool/result", "tool/result", "step/end", "turn/end"]
    written = [json.loads(line_of(closer)) for closer in closers]
    assert [row["seq"] for row in written] == [4, 5, 6, 7]
    assert {row["time"] for row in written} == {story(*OPEN, assistant(), CALL_A)[-1].time}
    first, second = written[:2]
    assert first["data"]["error"] == {"name": "ToolOutcomeUnknownError", "code": "TOOL_OUTCOME_UNKNOWN"}
    assert first["sourceEventSeqs"] == [3]
    assert first["data"]["message"]["id"] == "interrupted-tool-result-A-4"
    assert second["data"]["error"] == {"name": "ToolNotStartedError", "code": "TOOL_NOT_STARTED"}
    assert "sourceEventSeqs" not in second
    assert written[3]["data"] == {"turn": 1, "reason": {"kind": "interrupted"}}


def test_an_open_compaction_ends_with_an_error_before_anything_else() -> None:
    closers = repair(story(*OPEN, ("compaction/start", {"compactionId": "k", "turn": 1})))
    assert kinds(closers) == ["compaction/end", "step/end", "turn/end"]
    data = json.loads(bytes(closers[0].data))
    assert (data["compactionId"], data["turn"]) == ("k", 1)
    assert data["error"]


def test_a_finished_compaction_and_a_finished_call_are_left_alone() -> None:
    compaction: list[Any] = [
        ("compaction/start", {"compactionId": "k"}),
        ("compaction/end", {"compactionId": "k"}),
    ]
    assert kinds(repair(story(*OPEN, assistant("A"), CALL_A, result("A"), *compaction))) == [
        "step/end",
        "turn/end",
    ]


@pytest.mark.parametrize(("contract", "role"), [("v4", "tool"), ("v0", "user")])
def test_the_result_has_the_shape_of_its_contract_and_is_accepted(contract: str, role: str) -> None:
    events = story(*OPEN, assistant("A"), CALL_A)
    closers = repair(events, contract)
    message = json.loads(bytes(closers[0].data))["message"]
    assert message["role"] == role
    inner = message["content"][0] if contract == "v0" else message
    assert (inner["toolCallId"], inner["isError"]) == ("A", True)
    assert isinstance(inner["content"], list)
    header = Header(id="s", created_at=0, contract=contract, checks="paired")  # type: ignore[arg-type]
    assert Session.load(map(line_of, events + closers), header).surface.open_calls == {}


def test_a_call_id_with_half_a_surrogate_is_answered_as_it_was_made() -> None:
    events = story(*OPEN, assistant("A"))
    data = bytes(events[2].data).replace(b'"A"', rb'"\ud83e"')
    events[2] = Event("assistant/message", 2, 0, type(events[2].data)(data), surface_op=events[2].surface_op)
    closers = repair(events)
    assert rb'"toolCallId": "\ud83e"' in bytes(closers[0].data)
    assert repair(events + closers) == []


def moments(draw: st.DrawFn) -> list[Any]:
    """A well-nested story with calls answered in any order."""
    told: list[Any] = []
    for turn in range(1, draw(st.integers(1, 3)) + 1):
        told.append(("turn/start", {"turn": turn}))
        for step in range(1, draw(st.integers(1, 2)) + 1):
            place = {"turn": turn, "step": step}
            told.append(("step/start", place))
            calls = draw(st.lists(st.sampled_from("ABCD"), unique=True))
            told.append(assistant(*calls, turn=turn, step=step))
            told += [("tool/call", {**place, "callId": call}) for call in calls]
            told += [result(call, turn=turn, step=step) for call in draw(st.permutations(calls))]
            if draw(st.booleans()):
                told += [("compaction/start", {"compactionId": "k"}), ("compaction/end", {"compactionId": "k"})]
            told.append(("step/end", place))
        told.append(("turn/end", {"turn": turn, "reason": {"kind": "completed"}}))
    return told


@given(st.composite(moments)(), st.data())
def test_wherever_a_session_is_cut_its_closers_close_all_and_nothing_else(
    told: list[Any], data: st.DataObject
) -> None:
    events = story(*told)
    assert report(events) == []
    head = events[: data.draw(st.integers(0, len(events)))]
    closers = repair(head)
    whole = head + closers
    assert all(later.seq == event.seq + 1 for event, later in pairwise(whole))
    nesting = Nesting().follow(whole)
    assert (nesting.findings, nesting.calls, nesting.step, nesting.turn_open, nesting.compactions) == (
        [],
        [],
        None,
        False,
        [],
    )
    assert repair(whole) == []
    header = Header(id="s", created_at=0, checks="paired")
    assert Session.load(map(line_of, whole), header).next_seq == len(whole)
