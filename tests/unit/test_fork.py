"""Forks: what a child inherits, what it writes first, and the input that was waiting at the cut."""

from typing import Any

import pytest

from surfacelog.errors import ProtocolError
from surfacelog.fork import fork
from surfacelog.inbox import inbox
from tests.unit.story import assistant, result, story

OPEN: list[Any] = [("turn/start", {"turn": 1}), ("step/start", {"turn": 1, "step": 1})]
PARENT = story(*OPEN, assistant("A"), ("tool/call", {"turn": 1, "step": 1, "callId": "A"}), result("A"))


def splice(
    start: int = 0, removed: int = 0, *inserted: str, target: str = "next-turn"
) -> tuple[str, dict[str, Any]]:
    items = [{"id": name, "role": "user", "content": []} for name in inserted]
    data = {"target": target, "start": start, "removedCount": removed, "inserted": items}
    return ("agent/inbox/spliced", data)


@pytest.mark.parametrize(
    ("boundary", "own"),
    [
        (0, ["session/end-seed", "turn/end"]),
        (1, ["session/end-seed", "step/end", "turn/end"]),
        (2, ["session/end-seed", "tool/result", "step/end", "turn/end"]),
        (4, ["session/end-seed", "step/end", "turn/end"]),
    ],
)
def test_the_child_inherits_the_prefix_and_closes_what_is_open(boundary: int, own: list[str]) -> None:
    child = fork(PARENT, boundary)
    assert child.inherited == tuple(PARENT[: boundary + 1])
    assert [event.type for event in child.own] == own
    assert [event.seq for event in child.events] == list(range(len(child.events)))
    assert b'"forked"' in bytes(child.own[-1].data)


@pytest.mark.parametrize("boundary", [-1, 5, 99])
def test_a_boundary_that_the_parent_does_not_have_is_refused(boundary: int) -> None:
    with pytest.raises(ProtocolError, match="no event"):
        fork(PARENT, boundary)


def test_input_that_waits_at_the_cut_is_told() -> None:
    parent = story(splice(0, 0, "u1", "u2"), splice(0, 1), splice(0, 1))
    waiting = [[item.id for item in fork(parent, cut).inbox.pending] for cut in range(3)]
    assert waiting == [["u1", "u2"], ["u2"], []]


def test_queues_are_apart_and_splices_go_by_place() -> None:
    found = inbox(
        story(splice(0, 0, "a", "d"), splice(1, 0, "b", "c"), splice(0, 0, "x", target="now"), splice(3, 1))
    )
    assert [(item.target, item.id, item.seq) for item in found.pending] == [
        ("next-turn", "a", 0),
        ("next-turn", "b", 1),
        ("next-turn", "c", 1),
        ("now", "x", 2),
    ]
    assert found.faults == ()


@pytest.mark.parametrize(
    "bad", [splice(0, 1), splice(2, 0, "z"), splice(-1, 0, "z"), ("agent/inbox/spliced", {"start": 0})]
)
def test_a_splice_that_does_not_fit_is_a_fault_of_the_inbox_alone(bad: Any) -> None:
    found = inbox(story(bad, splice(0, 0, "u1")))
    assert [item.id for item in found.pending] == ["u1"]
    assert [fault.seq for fault in found.faults] == [0]
