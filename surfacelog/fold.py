"""The trusted fold: from lines that were accepted once to surface, transcript and replacements, as fast as can be.

Refuses what cannot be folded (a gap, a range that is not on the surface); every other rule was decided at append.
`trusted=False` also checks the relations of every event, as a reader of strange logs wants it, not its content.
"""

from collections.abc import Iterable, Mapping

import msgspec
from msgspec import UNSET, Raw

from surfacelog import rules
from surfacelog.contract import CONTRACTS
from surfacelog.derive import derive
from surfacelog.errors import ContractError
from surfacelog.events import Event, decode_event, event_decoder
from surfacelog.lossless import read_again
from surfacelog.surface import Surface

__all__ = ["Fold", "Replacement", "fold"]


class Replacement(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A replace: its own seq, the ends of its range, and every node that it took off the surface, in order."""

    seq: int
    start: int
    end: int
    shadowed_seqs: tuple[int, ...]


class Fold:
    """What the lines so far make. `nodes`: seqs in surface order; `transcript`: seqs of append-origin events."""

    __slots__ = (
        "_contract",
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
        decode, surface_types, strict = event_decoder.decode, self._contract.surface_types, self._contract.strict
        nodes, transcript, kept = self.nodes, self.transcript, self._lines
        seq = self.next_seq
        for line in lines:
            try:
                event = decode(line)
            except (msgspec.MsgspecError, ValueError, RecursionError):
                event = decode_event(line)
            if event.seq != seq:
                raise ContractError("seq-not-contiguous", f"the next event is seq {seq}, not {event.seq}")
            op = event.surface_op
            if op is not UNSET and event.type in surface_types:
                if bytes(op) == b'"append"' or self._replace(event, op, nodes) is None:
                    nodes.append(seq)
                    transcript.append(seq)
                kept[seq] = line
            elif strict and event.type == "image/offload":
                self._offload(event)
            seq += 1
            self.next_seq = seq
        return self

    def _replace(self, event: Event, op: Raw, nodes: list[int]) -> Replacement | None:
        span = rules.read_op(read_again(bytes(op)), event.seq, event.type, self._contract)
        if span is None:
            return None
        first, last = rules.find_span(span, nodes)
        shadowed = tuple(nodes[first : last + 1])
        nodes[first : last + 1] = (event.seq,)
        for seq in shadowed:
            del self._lines[seq]
            self._offloaded.pop(seq, None)
        replacement = Replacement(event.seq, span.start, span.end, shadowed)
        self.replacements.append(replacement)
        self.replace_generation += 1
        self.content_generation += 1
        return replacement

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
