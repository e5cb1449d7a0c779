"""Tool calls and their results. Open calls belong to the open step; whoever ends it drops them."""

from collections.abc import Sequence

from surfacelog.errors import ContractError
from surfacelog.node import Node

__all__ = ["Calls", "check_pairs", "close_call", "open_calls", "same_calls"]

Calls = tuple[dict[str, int], dict[str, int]]


def open_calls(opened: dict[str, int], made: Sequence[str], seq: int, paired: bool) -> dict[str, int]:
    """The open calls once the assistant message at `seq` made its own."""
    after = opened.copy()
    for call in made:
        if paired and call in after:
            raise ContractError("call-duplicate", f"the call {call!a} is open already; give each its own id")
        after[call] = seq
    return after


def close_call(opened: dict[str, int], call: str, paired: bool) -> tuple[int, Calls | None]:
    """The pair's number of a result, and the open calls before and after it."""
    pair = opened.get(call)
    if pair is None:
        if paired:
            raise ContractError("call-unknown", f"no call {call!a} is open in this step")
        return -1, None
    after = opened.copy()
    del after[call]
    return pair, (opened, after)


def same_calls(made: Sequence[str], old: Node) -> bool:
    """Whether the calls are those of the node, in any order: a message rewritten so takes over its pair."""
    return sorted(made) == sorted(old.calls)


def check_pairs(removed: Sequence[Node], position: int, entries: Sequence[Node], opened: dict[str, int]) -> None:
    """Refuses a replace that takes a call without its results, a result without its call, or an open call."""
    pairs = {node.answers for node in removed if node.answers >= 0}
    if not pairs:
        return
    if any(pair in pairs for pair in opened.values()):
        raise ContractError("call-shadowed", "a call in the range is still open; wait for its result")
    end = position + len(removed)
    for place, node in enumerate(entries):
        if node.answers in pairs and not position <= place < end:
            raise ContractError(
                "pair-split", f"the range splits a call from its result at seq {node.seq}; take both or none"
            )
