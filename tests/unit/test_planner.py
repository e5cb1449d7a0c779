"""Legal cuts of a surface, and windows that start inside a call and its results."""

from typing import Any

import pytest

from surfacelog.lifecycle import Nesting
from surfacelog.planner import last_window, legal_cuts
from tests.unit.story import assistant, result, story


def test_no_cut_between_a_call_and_the_last_of_its_results() -> None:
    nodes = story(assistant(), assistant("A", "B"), result("B"), result("A"), assistant())
    assert legal_cuts(nodes) == [0, 1, 4]


def test_a_dead_call_does_not_bind_what_comes_later_but_a_live_one_does() -> None:
    told: list[Any] = [
        ("turn/start", {"turn": 1}),
        ("step/start", {"turn": 1, "step": 1}),
        assistant("A"),
        assistant(),
    ]
    live = story(*told)
    dead = story(*told, ("step/end", {"turn": 1, "step": 1}))
    for events, legal in [(live, [2]), (dead, [2, 3])]:
        nodes = [event for event in events if event.type == "assistant/message"]
        assert legal_cuts(nodes, Nesting().follow(events).calls) == legal


def test_an_id_that_is_used_again_makes_a_group_of_its_own() -> None:
    nodes = story(assistant("A"), result("A"), assistant("A"), result("A"))
    assert legal_cuts(nodes) == [0, 2]


def test_a_result_without_a_call_on_the_surface_binds_nothing() -> None:
    assert legal_cuts(story(result("A"), assistant())) == [0, 1]


@pytest.mark.parametrize(
    ("count", "nodes", "position", "inside"),
    [
        (1, (2,), 2, True),
        (2, (1, 2), 1, True),
        (3, (0, 1, 2), 0, False),
        (9, (0, 1, 2), 0, False),
        (0, (), 3, False),
    ],
)
def test_a_window_says_where_it_starts(count: int, nodes: tuple[int, ...], position: int, inside: bool) -> None:
    window = last_window(story(assistant("A", "B"), result("A"), result("B")), count)
    assert (window.nodes, window.position, window.starts_inside_pair) == (nodes, position, inside)
