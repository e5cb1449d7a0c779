"""The surface of one session: which events the model sees, and what the next event may do.

`plan` decides and changes nothing; `apply` and `revert` carry a plan out and take it back.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from typing import NoReturn

from msgspec import UNSET

from surfacelog import rules
from surfacelog.body import Json, calls_of, read_message, read_result
from surfacelog.contract import CONTRACTS, SURFACE_TYPES
from surfacelog.derive import derive
from surfacelog.errors import ContractError
from surfacelog.events import Checked, Event, values_of
from surfacelog.lossless import read_again
from surfacelog.node import Node, Plan
from surfacelog.pairs import Calls, check_pairs, close_call, open_calls, same_calls
from surfacelog.places import Places
from surfacelog.tools import ToolTable, table_of

__all__ = ["Node", "Plan", "Surface", "ToolTable"]

_SCOPES = frozenset({"step/start", "step/end", "turn/start", "turn/end"})
_SPECIAL = _SCOPES | {"request/header", "image/offload"} | SURFACE_TYPES

_EMPTY_GIVES_NONE = SURFACE_TYPES - {"user/message", "tool/result"}
_WITH_IMAGES = frozenset({"user/message", "tool/result"})
# (position, removed nodes, pair's number, open calls before and after); the position of an append is -1.
Placing = tuple[int, tuple[Node, ...], int, Calls | None]
Decision = tuple[Node, int, tuple[Node, ...], Calls | None]


class Surface:
    """All that the contract's rules need to know of a session. Append-only traffic costs O(1) per event and
    never copies the node list. `open_calls`: call id -> seq of the assistant message that made it, in order; empty
    unless pairs are checked."""

    __slots__ = (
        "_checked",
        "_contract",
        "_entries",
        "_pair_sizes",
        "_paired",
        "_places",
        "_plain",
        "_types",
        "content_generation",
        "headers",
        "message_count",
        "next_seq",
        "open_calls",
        "replace_generation",
    )

    def __init__(
        self,
        contract: str = "v4",
        *,
        checks: str = "surface",
        vocabulary: Sequence[str] = (),
        base_seq: int = 0,
        content: str = "checked",
    ) -> None:
        """`content="trusted"` leaves the rules about an event's own data out: they were decided before."""
        self._contract = CONTRACTS[contract]
        self._checked = content == "checked"
        self._paired = checks == "paired"
        self._types = self._contract.log_types.union(vocabulary) if vocabulary else self._contract.log_types
        self._plain = self._types - _SPECIAL
        self._entries: list[Node] = []
        self._places = Places()
        self.next_seq = base_seq
        self.replace_generation = 0
        self.content_generation = 0
        self.message_count = 0
        self.open_calls: dict[str, int] = {}
        # Pair's number -> how many of its nodes are here, so that a replace need not look at all of them.
        self._pair_sizes: Counter[int] = Counter()
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
        surface = cls(contract, checks=checks, vocabulary=vocabulary, base_seq=next_seq)
        surface._entries = list(nodes)
        surface._places = Places(node.seq for node in surface._entries)
        surface.replace_generation = replace_generation
        surface.content_generation = content_generation
        surface.message_count = sum(not node.empty for node in surface._entries)
        surface._pair_sizes = Counter(node.answers for node in surface._entries if node.answers >= 0)
        surface.open_calls = dict(open_calls)
        surface.headers = dict(headers)
        return surface

    @property
    def nodes(self) -> list[int]:
        """The seqs the model sees now, in order."""
        return self._places.seqs.copy()

    @property
    def entries(self) -> Sequence[Node]:
        """The nodes themselves, in order; read only."""
        return self._entries

    def validate_next(self, event: Event) -> None:
        """Raises ContractError unless `event` may come next; changes nothing."""
        self.plan(event)

    def plan(self, event: Event) -> Plan:
        """What `event` would do; raises ContractError with the first rule that it breaks."""
        if event.type not in self._contract.surface_types:
            # Only what the rules look into is read.
            return self.plan_values(values_of(event, data=event.type == "image/offload"))
        values = values_of(event)
        return self.plan_values(values, derive(event))

    def plan_values(self, event: Checked, message: bytes | None = None) -> Plan:
        """As `plan`, for an event that was read as values; the plan carries `message` as the derived one."""
        if event.seq != self.next_seq:
            _refuse("seq-not-contiguous", f"the next event is seq {self.next_seq}, not {event.seq}")
        kind = event.type
        if kind in self._contract.surface_types:
            return self._plan_surface(event, message)
        if kind not in self._types:
            if event.ignorable is True:
                return Plan("log", event.seq)
            _refuse("type-unknown", f"{kind!a} is not known here; mark it ignorable or add it to the vocabulary")
        return self._plan_log(event)

    def _plan_log(self, event: Checked) -> Plan:
        kind, header = event.type, None
        targets: list[rules.Target] = []
        if self._contract.strict:
            if kind == "request/header":
                header = table_of(event.data, checked=self._checked)
            elif kind == "image/offload":
                data = event.data
                targets = rules.read_targets(read_again(data) if type(data) is bytes else data)
        if event.surface_op is not UNSET:
            _refuse("surface-op-forbidden", f"{kind} never comes onto the surface; leave surfaceOp out")
        if event.source_event_seqs is not UNSET:
            _refuse("sources-forbidden", f"{kind} never comes onto the surface; leave sourceEventSeqs out")
        if targets:
            return Plan("offload", event.seq, changed=rules.check_targets(targets, self._places, self._entries))
        if self.open_calls and kind in _SCOPES:
            return Plan("log", event.seq, calls=(self.open_calls, {}))
        return Plan("log", event.seq, header=header)

    def _plan_surface(self, event: Checked, message: bytes | None) -> Plan:
        node, position, removed, calls = self._decide(event)
        op = "append" if position < 0 else "replace"
        return Plan(op, event.seq, node, message, position, removed, (), None, calls)

    def _decide(self, event: Checked) -> Decision:
        """What becomes of a surface event."""
        contract, kind, seq, data = self._contract, event.type, event.seq, event.data
        if type(data) is bytes:
            data = read_again(data)
        message, blocks, kinds = read_message(kind, data, self._checked)
        digest = call = ""
        made: tuple[str, ...] = ()
        if kind == "tool/result":
            digest, call = read_result(data, message, contract.strict, self._checked)
        elif self._paired and kind == "assistant/message" and "tool-call" in kinds:
            made = calls_of(blocks)
        if contract.strict and self._checked:
            rules.check_local(kind, data, message, blocks, kinds)
        op, sources, span = event.surface_op, event.source_event_seqs, None
        if op != "append":
            span = rules.read_op(op, seq, kind, contract)
        if sources is not UNSET:
            rules.check_sources(sources, seq, kind, contract)
        if kind == "developer/message":
            rules.check_header(data, blocks, self.headers)
        position, removed, answers, calls = (
            self._append(seq, kind, made, call)
            if span is None
            else self._replace(seq, kind, made, digest, span, sources)
        )
        empty = kind in _EMPTY_GIVES_NONE and not message.get("content")
        images = kinds.count("image") if kind in _WITH_IMAGES else 0
        return Node(seq, kind, digest, images, empty, (), made, call, answers), position, removed, calls

    def _append(self, seq: int, kind: str, made: tuple[str, ...], call: str) -> Placing:
        if made:
            return -1, (), seq, open_calls(self.open_calls, made, seq)
        if self._paired and kind == "tool/result":
            return -1, (), *close_call(self.open_calls, call)
        return -1, (), -1, None

    def _replace(
        self, seq: int, kind: str, made: tuple[str, ...], digest: str, span: rules.Span, sources: Json
    ) -> Placing:
        position, removed = rules.check_span(span, sources, self._places, self._entries)
        if kind == "tool/result":
            rules.check_rewrite(digest, removed)
            return position, removed, removed[0].answers, None
        if position == 0 and self._contract.strict:
            rules.check_head(kind, removed)
        if made and len(removed) == 1 and same_calls(made, removed[0]):
            return position, removed, removed[0].answers, None
        if self._paired:
            check_pairs(removed, self._pair_sizes, self.open_calls)
        if not made:
            return position, removed, -1, None
        return position, removed, seq, open_calls(self.open_calls, made, seq)

    def advance_all(self, events: Iterable[Checked]) -> Iterator[int]:
        """Advances over the events; gives the seqs of those that were appended to the surface."""
        plain, advance, seq = self._plain, self.advance, self.next_seq
        for event in events:
            if event.seq == seq and event.type in plain:
                # Most events need no plan, and nothing but their number counted.
                if event.surface_op is UNSET and event.source_event_seqs is UNSET:
                    seq += 1
                    self.next_seq = seq
                    continue
            if advance(event) == "append":
                yield seq
            seq = self.next_seq

    def advance(self, event: Checked) -> str:
        """Plans and applies the event in one; returns the plan's op. For those who never take a plan back."""
        if event.seq == self.next_seq:
            kind = event.type
            if kind in self._plain:
                if event.surface_op is UNSET and event.source_event_seqs is UNSET:
                    self.next_seq += 1
                    return "log"
            elif kind in self._contract.surface_types:
                node, position, removed, calls = self._decide(event)
                self.next_seq += 1
                if calls is not None:
                    self.open_calls = calls[1]
                self._put(node, position, removed)
                return "append" if position < 0 else "replace"
        plan = self.plan_values(event)
        self.apply(plan)
        return plan.op

    def _put(self, node: Node, position: int, removed: tuple[Node, ...]) -> None:
        if not node.empty:
            self.message_count += 1
        if self._paired:
            self._count_pairs((node,), removed)
        if position < 0:
            self._entries.append(node)
            self._places.append(node.seq)
            return
        self.replace_generation += 1
        self.content_generation += 1
        for old in removed:
            if not old.empty:
                self.message_count -= 1
        self._places.replace(position, len(removed), node.seq)
        if len(removed) == 1:
            self._entries[position] = node
        else:
            self._entries[position : position + len(removed)] = (node,)

    def apply(self, plan: Plan) -> None:
        """Carries out a plan made on the present state."""
        assert plan.seq == self.next_seq, "the plan was made on another state"
        self.next_seq += 1
        if plan.calls is not None:
            self.open_calls = plan.calls[1]
        if plan.added is not None:
            self._put(plan.added, plan.position, plan.removed)
        elif plan.op == "offload":
            for position, _, new in plan.changed:
                self._entries[position] = new
            self.content_generation += 1
        elif plan.header is not None:
            self.headers[plan.seq] = plan.header

    def revert(self, plan: Plan) -> None:
        """Takes back the plan that was applied last."""
        assert plan.seq == self.next_seq - 1, "only the last plan can be taken back"
        self.next_seq -= 1
        if plan.calls is not None:
            self.open_calls = plan.calls[0]
        if plan.added is not None:
            self.message_count -= not plan.added.empty
            if self._paired:
                self._count_pairs(plan.removed, (plan.added,))
            if plan.op == "append":
                self._entries.pop()
                self._places.pop()
            else:
                self._places.put_back(plan.position, [node.seq for node in plan.removed])
                self._entries[plan.position : plan.position + 1] = plan.removed
                self.message_count += sum(not node.empty for node in plan.removed)
                self.replace_generation -= 1
                self.content_generation -= 1
        elif plan.op == "offload":
            for position, old, _ in plan.changed:
                self._entries[position] = old
            self.content_generation -= 1
        elif plan.header is not None:
            del self.headers[plan.seq]

    def _count_pairs(self, added: Iterable[Node], removed: Iterable[Node]) -> None:
        sizes = self._pair_sizes
        for node in added:
            if node.answers >= 0:
                sizes[node.answers] += 1
        for node in removed:
            if node.answers >= 0:
                sizes[node.answers] -= 1
                if not sizes[node.answers]:
                    del sizes[node.answers]


def _refuse(code: str, message: str) -> NoReturn:
    raise ContractError(code, message)
