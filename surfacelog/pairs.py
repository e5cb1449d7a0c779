"""Tool calls and their results, in sessions that check them. Open calls belong to the open step; whoever ends it
drops them.
"""

from collections import Counter
from collections.abc import Mapping, Sequence

from surfacelog.errors import ContractError
from surfacelog.node import Node

__all__ = ["Calls", "check_pairs", "close_call", "open_calls", "same_calls"]

# They are read and written whole with every event: together they stay as small as that allows.
OPEN_CALLS_MAX = 1024
OPEN_CALLS_CHARS_MAX = 64 * 1024
Calls = tuple[dict[str, int], dict[str, int]]


def open_calls(opened: dict[str, int], made: Sequence[str], seq: int) -> Calls:
    """The open calls before and after the assistant message at `seq` made its own."""
    if len(opened) + len(made) > OPEN_CALLS_MAX or sum(map(len, (*opened, *made))) > OPEN_CALLS_CHARS_MAX:
        raise ContractError(
            "calls-too-many",
            f"at most {OPEN_CALLS_MAX} calls are open at once, their ids {OPEN_CALLS_CHARS_MAX} characters",
        )
    after = opened.copy()
    for call in made:
        if call in after:
            raise ContractError("call-duplicate", f"the call {call!a} is open already; give each its own id")
        after[call] = seq
    return opened, after


def close_call(opened: dict[str, int], call: str) -> tuple[int, Calls]:
    """The pair's number of a result, and the open calls before and after it."""
    pair = opened.get(call)
    if pair is None:
        raise ContractError("call-unknown", f"no call {call!a} is open in this step")
    after = opened.copy()
    del after[call]
    return pair, (opened, after)


def same_calls(made: Sequence[str], old: Node) -> bool:
    """Whether the calls are those of the node, in any order: a message rewritten so takes over its pair."""
    return sorted(made) == sorted(old.calls)


def check_pairs(removed: Sequence[Node], sizes: Mapping[int, int], opened: Mapping[str, int]) -> None:
    """Refuses a replace that takes a call without its results, a result without its call, or an open call.
    `sizes`: how many nodes of each pair, by its number, the surface holds."""
    pairs = Counter(node.answers for node in removed if node.answers >= 0)
    if not pairs:
        return
    if any(pair in pairs for pair in opened.values()):
        raise ContractError("call-shadowed", "a call in the range is still open; wait for its result")
    for pair, count in pairs.items():
        if count != sizes[pair]:
            raise ContractError(
                "pair-split", f"the range splits the call of seq {pair} from its results; take all or none"
            )
