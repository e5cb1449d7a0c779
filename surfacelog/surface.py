"""The surface of one session: which events the model sees, and what the next event may do.

`plan` decides and changes nothing; `apply` and `revert` carry a plan out and take it back.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from surfacelog.events import Event

__all__ = ["Node", "Plan", "Surface", "ToolTable"]


class Node(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A node of the surface, with what later checks need of its event. `digest`: of a tool result without
    its content (hex). `empty`: derives to no message. `images`: how many image blocks. `offloaded`: which of them are. `calls`: call ids an
    assistant message made. `answers`: seq of the assistant message that a tool result answers, else -1."""

    seq: int
    type: str
    digest: str = ""
    images: int = 0
    empty: bool = False
    offloaded: tuple[int, ...] = ()
    calls: tuple[str, ...] = ()
    call: str = ""
    answers: int = -1


class ToolTable(msgspec.Struct, frozen=True, gc=False):
    """The tools that a `request/header` defines. `digest` (hex) names the table; `tools` maps a name to
    "complete", "incomplete" or "double"."""

    digest: str
    tools: dict[str, str]


class Plan(msgspec.Struct, frozen=True, gc=False):
    """What one event does. `op`: "log" (nothing), "append", "replace" or "offload". A replace takes `removed`
    out at `position` and puts `added` there. `changed`: nodes that an offload rewrites, as (position, old, new).
    `message`: the derived message of the added node, JSON bytes, or None."""

    op: str
    seq: int
    added: Node | None = None
    message: bytes | None = None
    position: int = -1
    removed: tuple[Node, ...] = ()
    changed: tuple[tuple[int, Node, Node], ...] = ()
    header: ToolTable | None = None
    calls: Any = None


class Surface:
    """All that the contract's rules need to know of a session. Append-only traffic costs O(1) per event and
    never copies the node list. `open_calls`: call id -> seq of the assistant message that made it, in order."""

    def __init__(
        self,
        contract: str = "v4",
        *,
        checks: str = "surface",
        vocabulary: Sequence[str] = (),
        base_seq: int = 0,
    ) -> None:
        self.next_seq = base_seq
        self.replace_generation = 0
        self.content_generation = 0
        self.message_count = 0
        self.open_calls: dict[str, int] = {}
        self.headers: dict[int, ToolTable] = {}

    @classmethod
    def restore(
        cls,
        contract: str,
        *,
        checks: str,
        vocabulary: Sequence[str],
        next_seq: int,
        replace_generation: int,
        content_generation: int,
        nodes: Iterable[Node],
        open_calls: dict[str, int],
        headers: dict[int, ToolTable],
    ) -> "Surface":
        """The surface that a snapshot describes (a window that starts at `next_seq`)."""
        raise NotImplementedError

    @property
    def nodes(self) -> list[int]:
        """The seqs the model sees now, in order."""
        raise NotImplementedError

    @property
    def entries(self) -> Sequence[Node]:
        """The nodes themselves, in order; read only."""
        raise NotImplementedError

    def plan(self, event: Event) -> Plan:
        """What `event` would do; raises ContractError with the first rule that it breaks."""
        raise NotImplementedError

    def validate_next(self, event: Event) -> None:
        """Raises ContractError unless `event` may come next; changes nothing."""
        self.plan(event)

    def apply(self, plan: Plan) -> None:
        """Carries out a plan made on the present state."""
        raise NotImplementedError

    def revert(self, plan: Plan) -> None:
        """Takes back the plan that was applied last."""
        raise NotImplementedError
