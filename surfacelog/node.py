"""What the surface keeps of an event, and what one event does to the surface: plain values."""

import msgspec

from surfacelog.tools import ToolTable

__all__ = ["Node", "Plan"]


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node of the surface, with what later checks need of its event. `digest`: of a tool result without
    its content (hex). `images`: how many image blocks an offload may choose from. `empty`: derives to no message.
    `offloaded`: indexes of the images that are. `calls`: call ids that an assistant message made. `call`: call id
    that a tool result answers. `answers`: the pair's number, the seq of the assistant message that first made
    the call; the assistant message and its results carry it, all others -1."""

    seq: int
    type: str
    digest: str = ""
    images: int = 0
    empty: bool = False
    offloaded: tuple[int, ...] = ()
    calls: tuple[str, ...] = ()
    call: str = ""
    answers: int = -1


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What one event does. `op`: "log" (nothing), "append", "replace" or "offload". A replace takes `removed`
    out at `position` and puts `added` there. `changed`: nodes that an offload rewrites, as (position, old, new).
    `message`: the derived message of the added node, JSON bytes, or None. `calls`: open calls before and after,
    None when they stay as they are."""

    op: str
    seq: int
    added: Node | None = None
    message: bytes | None = None
    position: int = -1
    removed: tuple[Node, ...] = ()
    changed: tuple[tuple[int, Node, Node], ...] = ()
    header: ToolTable | None = None
    calls: tuple[dict[str, int], dict[str, int]] | None = None
