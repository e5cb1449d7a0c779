"""What one commit adds to a session's keys, worked out from what the fold changed. Pure.

Append-only traffic gives a delta of the size of what is new; a new content generation one with a new message list.
"""

from collections.abc import Mapping, Sequence

import msgspec

from surfacelog.entries import entry_field, key_entry, recent_entry, rows_of
from surfacelog.state import Changes, SessionState
from surfacelog.surface import Node, Plan, ToolTable

__all__ = ["Delta", "MessageList", "changed_delta", "message_list", "nodes_before", "offloaded_seqs"]


class MessageList(msgspec.Struct, frozen=True):
    """A new message list in pieces: (first, last) of the old list, or new messages."""

    pieces: list[tuple[int, int] | list[bytes]]

    @property
    def count(self) -> int:
        """How many messages the list has."""
        return sum(piece[1] - piece[0] + 1 if isinstance(piece, tuple) else len(piece) for piece in self.pieces)

    @property
    def new_count(self) -> int:
        """How many of its messages are new."""
        return sum(len(piece) for piece in self.pieces if isinstance(piece, list))

    @property
    def size_bytes(self) -> int:
        """The size of its new messages."""
        return sum(sum(map(len, piece)) for piece in self.pieces if isinstance(piece, list))


class Delta(msgspec.Struct, kw_only=True):
    """`rows`: node rows to append, or all of them when `rewritten`. `messages`: to append. `rebuilt`: the list
    that replaces the present one. `commits`: (seq, offset). `fresh`: whatever the keys hold is stale."""

    rows: bytes = b""
    rewritten: bool = False
    messages: list[bytes] = msgspec.field(default_factory=list)
    rebuilt: MessageList | None = None
    transcript: list[int] = msgspec.field(default_factory=list)
    commits: list[tuple[int, int]] = msgspec.field(default_factory=list)
    lines: Sequence[bytes] = ()
    recent: Mapping[bytes, bytes] = msgspec.field(default_factory=dict)
    recent_gone: Sequence[bytes] = ()
    keys: Mapping[bytes, bytes] = msgspec.field(default_factory=dict)
    keys_gone: Sequence[bytes] = ()
    tables: dict[int, ToolTable] = msgspec.field(default_factory=dict)
    fresh: bool = False


def changed_delta(state: SessionState, changes: Changes) -> Delta:
    """The delta of what was folded since the last commit; without the message list of a new generation."""
    rewritten = any(plan.op in ("replace", "offload") for plan in changes.plans)
    appended = [plan for plan in changes.plans if plan.op == "append"]
    if rewritten:
        rows = rows_of(state.surface.entries)
    else:
        rows = rows_of(plan.added for plan in appended if plan.added is not None)
    return Delta(
        rows=rows,
        rewritten=rewritten,
        messages=[] if rewritten else [plan.message for plan in appended if plan.message is not None],
        transcript=changes.transcript,
        commits=changes.commits,
        lines=changes.lines,
        recent=dict(recent_entry(*entry) for entry in changes.recent.values()),
        recent_gone=[entry_field(name) for name in changes.recent_gone],
        keys=dict(key_entry(name, used) for name, used in changes.keys.items()),
        keys_gone=[entry_field(name) for name in changes.keys_gone],
        tables={plan.seq: plan.header for plan in changes.plans if plan.header is not None},
    )


def nodes_before(nodes: Sequence[Node], plans: Sequence[Plan]) -> list[Node]:
    """The surface as it was before `plans` made `nodes` of it."""
    found = list(nodes)
    for plan in reversed(plans):
        if plan.op == "append":
            found.pop()
        elif plan.op == "replace":
            found[plan.position : plan.position + 1] = plan.removed
        elif plan.op == "offload":
            for position, old, _ in reversed(plan.changed):
                found[position] = old
    return found


def offloaded_seqs(plans: Sequence[Plan]) -> set[int]:
    """The nodes whose messages an offload changes."""
    return {new.seq for plan in plans if plan.op == "offload" for _, _, new in plan.changed}


def message_list(before: Sequence[Node], after: Sequence[Node], bodies: dict[int, bytes]) -> MessageList:
    """The messages of the nodes `after`: from `bodies` (seq -> message) where they are new, else from their places
    in the old list, which held those of the nodes `before`."""
    places: dict[int, int] = {}
    for node in before:
        if not node.empty:
            places[node.seq] = len(places)
    pieces: list[tuple[int, int] | list[bytes]] = []
    for node in after:
        if node.empty:
            continue
        last = pieces[-1] if pieces else None
        body = bodies.get(node.seq)
        if body is not None:
            if isinstance(last, list):
                last.append(body)
            else:
                pieces.append([body])
            continue
        place = places[node.seq]
        if isinstance(last, tuple) and last[1] + 1 == place:
            pieces[-1] = (last[0], place)
        else:
            pieces.append((place, place))
    return MessageList(pieces)
