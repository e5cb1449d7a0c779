"""The trusted fold: from lines that were accepted once to surface, transcript and replacements, as fast as can be.

Refuses what cannot be folded (a gap, a range that is not on the surface); every other rule was decided at append.
`trusted=False` also checks the relations of every event, as a reader of strange logs wants it, not its content.
"""

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType

from surfacelog import rules
from surfacelog.contract import CONTRACTS
from surfacelog.derive import derive
from surfacelog.errors import ContractError
from surfacelog.events import Event, decode_event
from surfacelog.lossless import read_again
from surfacelog.surface import Surface

__all__ = ["Fold", "Replacement", "fold"]


class Replacement(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A replace: its own seq, the ends of its range, and every node that it took off the surface, in order."""

    seq: int
    start: int
    end: int
    shadowed_seqs: tuple[int, ...]


class _RangeV4(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="op", tag="replace"):
    start: int = msgspec.field(name="startSeq")
    end: int = msgspec.field(name="endSeq")


class _RangeV0(msgspec.Struct, frozen=True, gc=False, forbid_unknown_fields=True, tag_field="op", tag="replace"):
    start: int
    end: int


class _HeadV4(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str
    seq: int
    surface_op: str | _RangeV4 | UnsetType = UNSET


class _HeadV0(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    type: str
    seq: int
    surface_op: str | _RangeV0 | UnsetType = UNSET


Decode = Callable[[bytes], _HeadV4 | _HeadV0]
_decode_head: Mapping[str, Decode] = {
    "v4": msgspec.json.Decoder(_HeadV4).decode,
    "v0": msgspec.json.Decoder(_HeadV0).decode,
}


class Fold:
    """What the lines so far make. `nodes`: seqs in surface order; `transcript`: seqs of append-origin events."""

    __slots__ = (
        "_contract",
        "_decode",
        "_lines",
        "_offloaded",
        "content_generation",
        "next_seq",
        "nodes",
        "replace_generation",
        "replacements",
        "transcript",
    )

    def __init__(self, contract: str = "v4", base_seq: int = 0) -> None:
        self._contract = CONTRACTS[contract]
        self._decode = _decode_head[contract]
        self._lines: dict[int, bytes] = {}
        self._offloaded: dict[int, tuple[int, ...]] = {}
        self.next_seq = base_seq
        self.nodes: list[int] = []
        self.transcript: list[int] = []
        self.replacements: list[Replacement] = []
        self.replace_generation = 0
        self.content_generation = 0

    def extend(self, lines: Iterable[bytes]) -> "Fold":
        """Folds further lines in; raises ContractError at the first that does not fit."""
        decode, surface_types, offloads = self._decode, self._contract.surface_types, self._contract.strict
        keep, node, seen = self._lines.__setitem__, self.nodes.append, self.transcript.append
        seq = self.next_seq
        try:
            for line in lines:
                try:
                    head = decode(line)
                except (msgspec.MsgspecError, ValueError, RecursionError):
                    head = self._careful(line)
                if head.seq != seq:
                    raise ContractError("seq-not-contiguous", f"the next event is seq {seq}, not {head.seq}")
                op = head.surface_op
                if op is not UNSET and head.type in surface_types:
                    if op == "append":
                        node(seq)
                        seen(seq)
                    else:
                        self._replace(seq, op)
                    keep(seq, line)
                elif offloads and head.type == "image/offload":
                    self._offload(decode_event(line))
                seq += 1
        finally:
            self.next_seq = seq
        return self

    def _careful(self, line: bytes) -> _HeadV4 | _HeadV0:
        event = decode_event(line)
        raw = event.surface_op
        if raw is UNSET or event.type not in self._contract.surface_types:
            return _HeadV4(event.type, event.seq)
        span = rules.read_op(read_again(bytes(raw)), event.seq, event.type, self._contract)
        return _HeadV4(event.type, event.seq, "append" if span is None else _RangeV4(span.start, span.end))

    def _replace(self, seq: int, op: Any) -> None:
        if type(op) is str:
            raise ContractError("surface-op-invalid", 'surfaceOp is "append" or a replace')
        nodes, lines = self.nodes, self._lines
        first, last = rules.find_span(op, partial(rules.position_of, seqs=nodes))
        shadowed = tuple(nodes[first : last + 1])
        nodes[first : last + 1] = (seq,)
        for old in shadowed:
            del lines[old]
        if self._offloaded:
            for old in shadowed:
                self._offloaded.pop(old, None)
        self.replacements.append(Replacement(seq, op.start, op.end, shadowed))
        self.replace_generation += 1
        self.content_generation += 1

    def _offload(self, event: Event) -> None:
        for target in rules.read_targets(read_again(bytes(event.data))):
            if target.seq not in self._lines:
                raise ContractError("offload-target-not-on-surface", f"seq {target.seq} is not on the surface")
            self._offloaded[target.seq] = (*self._offloaded.get(target.seq, ()), *target.indexes)
        self.content_generation += 1

    def messages(self) -> list[tuple[int, bytes]]:
        """(seq, derived message) in surface order, nodes without a message left out."""
        found = []
        for seq in self.nodes:
            message = derive(decode_event(self._lines[seq]), self._offloaded.get(seq, ()))
            if message is not None:
                found.append((seq, message))
        return found

    def lines(self) -> Mapping[int, bytes]:
        """The lines of the present nodes, by seq; read only."""
        return self._lines


def fold(lines: Iterable[bytes], contract: str = "v4", *, trusted: bool = True) -> Fold:
    """The fold of a session's lines from its first event on; raises ContractError."""
    if trusted:
        return Fold(contract).extend(lines)
    surface = Surface(contract, content="trusted")
    folded = Fold(contract)
    for line in lines:
        surface.apply(surface.plan(decode_event(line)))
        folded.extend((line,))
    return folded
