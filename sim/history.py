"""The log of one run, replayed: what every session really is, step by step.

Sequence numbers, fences and messages are counted anew here, by the simplest code that does it, so that a fault in
the core shows as a difference.
"""

from collections.abc import Mapping, Sequence

import msgspec

from producer.log import LogRecord
from surfacelog.accept import accept
from surfacelog.events import read_lines
from surfacelog.records import EMPTY_FENCE, Record, fence_text, read_record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["History", "Step", "replay"]


class Step(msgspec.Struct, frozen=True):
    """One record of a session and what became of it. `fence`, `chain`, `next_seq`: right before it; `holder`:
    who held the session then, by our own count. `head`: (next seq, content generation) right after it."""

    offset: int
    record: Record | None
    verdict: Verdict
    fence: str
    holder: str
    chain: bytes
    next_seq: int
    head: tuple[int, int]


class History:
    """`lines`: the accepted events in order. `marks`: mark -> seqs of the events that carry it. `prefixes`:
    head -> the (seq, message) nodes then. `transcript`: seqs of append-origin events. `inherited`: how
    many events come from `parent` (a record key)."""

    def __init__(self, key: bytes, partition: int) -> None:
        self.key = key
        self.partition = partition
        self.state = SessionState()
        self.steps: list[Step] = []
        self.lines: list[bytes] = []
        self.marks: dict[str, list[int]] = {}
        self.transcript: list[int] = []
        self.surface: list[tuple[int, bytes]] = []
        self.generation = 0
        self.prefixes: dict[tuple[int, int], tuple[tuple[int, bytes], ...]] = {}
        self.epoch = 0
        self.holder = EMPTY_FENCE
        self.parent = b""
        self.inherited = 0
        self._copier = ""

    @property
    def records(self) -> Sequence[tuple[int, Record | None]]:
        """(offset, record) of the session, in log order."""
        return [(step.offset, step.record) for step in self.steps]

    def take(self, offset: int, record: Record | None) -> None:
        """One more record of the session."""
        state = self.state
        fence, chain, next_seq = state.fence, state.chain, len(self.lines)
        # Until a fork has all that it inherits, only its copy may write.
        holder = self._copier if next_seq < self.inherited else self.holder
        verdict = accept(state, record, offset)
        if verdict.outcome == "accepted" and record is not None:
            self._accepted(record, next_seq)
        head = (len(self.lines), self.generation)
        self.steps.append(Step(offset, record, verdict.told(), fence, holder, chain, next_seq, head))
        self.prefixes.setdefault(head, tuple(self.surface))

    def _accepted(self, record: Record, next_seq: int) -> None:
        if record.kind == "open":
            header = msgspec.json.decode(record.value)
            self.inherited = header.get("inheritedEventCount", 0)
            self.parent = self.key.partition(b"/")[0] + b"/" + header.get("parentSession", "").encode()
            self._copier = fence_text(0, "fork", record.id)
        elif record.kind == "claim":
            claim = msgspec.json.decode(record.value)
            self.epoch = claim["epoch"]
            self.holder = fence_text(claim["epoch"], claim["owner"], claim["claim"])
        elif record.kind == "release":
            self.holder = fence_text(self.epoch)
        elif record.kind == "delete":
            self.surface.clear()
        elif record.kind == "commit":
            for ordinal, line in enumerate(read_lines(record.value)):
                self._event(next_seq + ordinal, line)

    def _event(self, seq: int, line: bytes) -> None:
        self.lines.append(line)
        event = msgspec.json.decode(line)
        mark = _mark_of(event["data"])
        if mark:
            self.marks.setdefault(mark, []).append(seq)
        op = event.get("surfaceOp")
        if op is None:
            return
        node = (seq, bytes(msgspec.json.decode(line, type=_Bodied).data))
        if op == "append":
            self.surface.append(node)
            self.transcript.append(seq)
            return
        seqs = [place for place, _ in self.surface]
        start, end = seqs.index(op["startSeq"]), seqs.index(op["endSeq"])
        self.surface[start : end + 1] = [node]
        self.generation += 1


class _Bodied(msgspec.Struct):
    data: msgspec.Raw


def _mark_of(data: object) -> str:
    if not isinstance(data, dict):
        return ""
    mark = data.get("mark") or data.get("id")
    return mark if isinstance(mark, str) else ""


def replay(records: Mapping[int, Sequence[LogRecord]]) -> dict[bytes, History]:
    """Every session of the log: record key -> history."""
    found: dict[bytes, History] = {}
    for partition, rows in records.items():
        for row in rows:
            if row.key is None:
                continue
            history = found.get(row.key)
            if history is None:
                history = found[row.key] = History(row.key, partition)
            history.take(row.offset, read_record(row.headers, row.value))
    return found
