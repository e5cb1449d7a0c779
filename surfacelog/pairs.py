"""Tool calls and their results. Open calls belong to the open step; whoever ends it drops them."""

from collections.abc import Sequence

import msgspec

from surfacelog.errors import ContractError
from surfacelog.node import Node

__all__ = ["Calls", "check_pairs", "close_call", "keeps_pair", "open_calls"]

Calls = tuple[dict[str, int], dict[str, int]]


def open_calls(opened: dict[str, int], node: Node, paired: bool) -> dict[str, int]:
    """The open calls once an assistant message made its own."""
    after = opened.copy()
    for call in node.calls:
        if paired and call in after:
            raise ContractError("call-duplicate", f"the call {call!a} is open already; give each its own id")
        after[call] = node.answers
    return after


def close_call(opened: dict[str, int], node: Node, paired: bool) -> tuple[Node, Calls | None]:
    """The result with the number of its pair, and the open calls before and after it."""
    pair = opened.get(node.call)
    if pair is None:
        if paired:
            raise ContractError("call-unknown", f"no call {node.call!a} is open in this step")
        return node, None
    after = opened.copy()
    del after[node.call]
    return msgspec.structs.replace(node, answers=pair), (opened, after)


def keeps_pair(node: Node, removed: Sequence[Node]) -> Node | None:
    """The node with its predecessor's pair, when it rewrites one result, or one message with the same calls."""
    if len(removed) != 1:
        return None
    old = removed[0]
    if node.type == old.type == "tool/result" or (node.calls and sorted(node.calls) == sorted(old.calls)):
        return msgspec.structs.replace(node, answers=old.answers)
    return None


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
