"""One record between its writer and its verdict."""

from enum import Enum, auto

import msgspec

from producer.requests import Request
from surfacelog.errors import LedgerError
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["Commit", "Produced"]


class Produced(Enum):
    """What the log said: nothing yet, that it has the record, that nobody can say, that it has it not."""

    WAITING = auto()
    LOGGED = auto()
    UNKNOWN = auto()
    UNWRITTEN = auto()


class Commit:
    """`planned`: what the fold will say if all goes well, `before` the chain it continues, and `state` what it
    will leave. `ordinal`: of the state that the cache showed before it was sent. `requests`: who waits for it;
    an idempotent repeat waits with the first. `refusal`: of the log itself."""

    __slots__ = (
        "before",
        "fresh_offset",
        "offset",
        "ordinal",
        "planned",
        "produced",
        "record",
        "refusal",
        "requests",
        "sent_at",
        "state",
        "verdict",
    )

    def __init__(
        self,
        record: Record,
        planned: Verdict,
        request: Request,
        state: SessionState,
        before: bytes,
        ordinal: int,
        sent_at: float,
    ) -> None:
        self.record = record
        self.planned = planned
        self.requests = [request]
        self.state = state
        self.before = before
        self.ordinal = ordinal
        self.sent_at = sent_at
        self.offset = -1
        self.fresh_offset = -1
        self.produced = Produced.WAITING
        self.verdict: Verdict | None = None
        self.refusal: LedgerError | None = None

    @property
    def settled(self) -> bool:
        """Whether its fate is known: it has a verdict, or the log has it not."""
        return self.verdict is not None or self.produced is Produced.UNWRITTEN

    @property
    def as_planned(self) -> bool:
        """Whether the history went on by this very record. A duplicate by key has another chain."""
        return self.verdict is not None and self.verdict.landed and self.verdict.chain == self.planned.chain

    def keep_offset(self) -> None:
        """Completes what the plan's state says of the record: when it was planned, nobody knew the offset."""
        record, state = self.record, self.state
        if self.verdict is None:
            return
        offset = self.verdict.offset
        if record.kind == "open":
            state.first_offset = offset
        if record.id in state.recent:
            state.recent[record.id] = self.landed_at(offset)
        if record.key is None:
            return
        used = state.keys.get(record.key.key)
        if used is not None and used.id == record.id:
            state.keys[record.key.key] = msgspec.structs.replace(used, offset=offset)

    def landed_at(self, offset: int) -> Verdict:
        """The verdict that the log's own record at `offset` proves."""
        planned = self.planned
        return Verdict(
            "accepted",
            self.record.id,
            "",
            planned.seq,
            planned.count,
            offset,
            planned.next_seq,
            planned.chain,
        )

    def refused_late(self) -> Verdict:
        """The verdict that another commit at its place proves."""
        return Verdict("rejected", self.record.id, "seq-conflict", self.record.seq)
