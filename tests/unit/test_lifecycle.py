"""Nesting of turns, steps, calls and compactions: what is reported, and what is left open."""

from typing import Any

import pytest

from surfacelog.events import Event
from surfacelog.lifecycle import Nesting, report
from tests.unit.story import assistant, result, story


def texts(*moments: Any) -> list[tuple[int, str]]:
    return [(finding.seq, finding.text) for finding in report(story(*moments))]


TURN: list[Any] = [("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1})]
END: list[Any] = [("step/end", {"turn": 1, "step": 1}), ("turn/end", {"turn": 1, "reason": {"kind": "completed"}})]


def call(name: str) -> tuple[str, dict[str, Any]]:
    return ("tool/call", {"turn": 1, "step": 1, "callId": name})


def test_a_whole_turn_has_nothing_out_of_place() -> None:
    assert texts(*TURN, assistant("A", "B"), call("A"), call("B"), result("B"), result("A"), *END) == []


def test_a_call_id_may_come_again_in_the_next_step() -> None:
    second: list[Any] = [
        ("step/start", {"turn": 1, "step": 2}),
        assistant("A", step=2),
        result("A", step=2),
        ("step/end", {"turn": 1, "step": 2}),
    ]
    assert texts(*TURN, assistant("A"), result("A"), END[0], *second, END[1]) == []


@pytest.mark.parametrize(
    ("moments", "seq", "said"),
    [
        ([*TURN, assistant("A"), END[0]], 3, "not answered: A"),
        ([*TURN, result("A")], 2, "no open call: A"),
        ([*TURN, assistant("A"), result("A"), result("A")], 4, "no open call"),
        ([*TURN, assistant("A", "A")], 2, "open already"),
        ([*TURN, assistant("A"), assistant("A")], 3, "open already"),
        ([*TURN, call("A")], 2, "no message made the call A"),
        ([*TURN, assistant("A"), call("A"), call("A")], 4, "started before, at 3"),
        ([TURN[0], assistant()], 1, "no step is open"),
        ([*TURN, assistant(step=2)], 2, "step 1 is open, not turn 1 step 2"),
        ([TURN[0], TURN[0]], 1, "turn 1 is still open"),
        ([("turn/start", {"turn": 2})], 0, "turn 2 comes where turn 1 is due"),
        ([TURN[0], ("step/start", {"turn": 1, "step": 2})], 1, "step 2 comes where step 1 is due"),
        ([TURN[0], ("step/start", {"turn": 2, "step": 1})], 1, "turn 1 is open, not 2"),
        ([TURN[1]], 0, "no turn is open"),
        ([*TURN, TURN[1]], 2, "step 1 is still open"),
        ([*TURN, END[1]], 2, "step 1 is still open"),
        ([END[1]], 0, "no turn is open"),
        ([TURN[0], ("turn/end", {"turn": 2})], 1, "turn 1 is open, not 2"),
        ([TURN[0], END[0]], 1, "no step is open"),
        ([("compaction/start", {"compactionId": "k"})] * 2, 1, "compaction k is still open"),
        ([("compaction/end", {"compactionId": "k"})], 0, "no compaction k is open"),
        ([("compaction/summary", {"compactionId": "k"})], 0, "no compaction k is open"),
        ([("turn/start", [1])], 0, "not an object"),
    ],
)
def test_what_does_not_nest_is_reported_at_its_seq(moments: list[Any], seq: int, said: str) -> None:
    found = texts(*moments)
    assert found
    assert found[0][0] == seq
    assert said in found[0][1]


def test_a_dead_call_does_not_touch_the_next_turn() -> None:
    dead = [*TURN, assistant("A"), END[0], END[1]]
    nesting = Nesting().follow(story(*dead, ("turn/start", {"turn": 2}), ("step/start", {"turn": 2, "step": 1})))
    assert len(nesting.findings) == 1
    assert nesting.calls == []


def test_a_replacement_is_no_answer_and_no_call() -> None:
    op = {"op": "replace", "startSeq": 2, "endSeq": 2}
    nesting = Nesting().follow(story(*TURN, assistant("A"), result("A", op=op), assistant("B", op=op)))
    assert [open_call.id for open_call in nesting.calls] == ["A"]
    assert nesting.findings == []


def test_the_older_shape_of_a_result_answers_too() -> None:
    message = {"role": "user", "content": [{"type": "tool-result", "toolCallId": "A", "content": []}]}
    old = ("tool/result", {"turn": 1, "step": 1, "message": message}, "append")
    assert texts(*TURN, assistant("A"), old, *END) == []


def test_a_message_with_half_a_surrogate_is_read() -> None:
    events = list(story(*TURN, assistant("A"), result("A")))
    data = bytes(events[2].data).replace(b'"A"', rb'"\ud83e"')
    events[2] = Event(
        "assistant/message", 2, events[2].time, type(events[2].data)(data), surface_op=events[2].surface_op
    )
    nesting = Nesting().follow(events)
    assert [open_call.id for open_call in nesting.calls] == ["\ud83e"]
