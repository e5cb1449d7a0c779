"""Where a compaction may cut a surface, and whether a window of it starts inside a call and its results.

A group is an assistant message with calls up to its last result. The surface's own rules take a replace that
splits one; a provider does not, so a planner asks here first.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from surfacelog.events import Event, read_data
from surfacelog.lifecycle import OpenCall, call_ids, result_call_id

__all__ = ["Window", "last_window", "legal_cuts"]


class Window(msgspec.Struct, frozen=True):
    """The last nodes of a surface (seqs in order). `position`: of the first one. `starts_inside_pair`: the
    window holds results whose call is before it, so it is never sent to a provider as it is."""

    nodes: tuple[int, ...]
    position: int
    starts_inside_pair: bool


def legal_cuts(nodes: Sequence[Event], open_calls: Iterable[OpenCall] = ()) -> list[int]:
    """The seqs of the nodes before which a cut splits no group. `nodes`: the surface's events, in order;
    `open_calls`: the calls that still wait for a result. A dead call of an ended step binds nothing."""
    inside = _inside(nodes, open_calls)
    return [event.seq for event, bound in zip(nodes, inside, strict=True) if not bound]


def last_window(nodes: Sequence[Event], count: int, open_calls: Iterable[OpenCall] = ()) -> Window:
    """The last `count` nodes of the surface, or all of them when there are fewer."""
    position = max(0, len(nodes) - count)
    inside = _inside(nodes, open_calls)
    starts_inside = position < len(nodes) and inside[position]
    return Window(tuple(event.seq for event in nodes[position:]), position, starts_inside)


def _inside(nodes: Sequence[Event], open_calls: Iterable[OpenCall]) -> list[bool]:
    """For each node, whether a cut before it lies inside a group."""
    inside = [False] * len(nodes)
    waiting: dict[str, int] = {}
    for place, event in enumerate(nodes):
        if event.type == "assistant/message":
            waiting.update(dict.fromkeys(call_ids(_message_of(event)), place))
        elif event.type == "tool/result":
            made = waiting.get(result_call_id(_message_of(event)))
            if made is not None:
                inside[made + 1 : place + 1] = [True] * (place - made)
    places = {event.seq: place for place, event in enumerate(nodes)}
    for call in open_calls:
        made = places.get(call.message)
        if made is not None:
            inside[made + 1 :] = [True] * (len(nodes) - made - 1)
    return inside


def _message_of(event: Event) -> Any:
    data = read_data(event.data)
    return data.get("message") if isinstance(data, dict) else None
