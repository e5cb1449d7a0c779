"""A client that speaks the record protocol itself: another implementation of a writer, and a reckless one.

It takes no lock, folds the log on its own, pipelines, and writes under its claim even when it could know that the
claim is over; but it believes verdicts only. Whatever it does, the log must keep its promises to everybody.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from producer.log import ProduceUnknown, Unavailable
from sim.evidence import Answer, Ask, Evidence
from sim.wires import WireLog
from surfacelog.accept import accept, preview
from surfacelog.errors import LedgerError
from surfacelog.events import encode_line
from surfacelog.records import Record, read_record
from surfacelog.snapshot import pieces, restore
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["RawWriter"]

PATIENCE_S = 2.0
POLL_S = 0.02
ATTEMPTS_MAX = 4
TIMEOUT_MS = 1_000


class RawWriter:
    """Writes to one session. `mint` gives ids; `end` tells the true log end, for the evidence alone."""

    def __init__(
        self,
        log: WireLog,
        evidence: Evidence,
        partition: int,
        key: bytes,
        mint: Callable[[], str],
        end: Callable[[], int],
    ) -> None:
        self._log = log
        self._evidence = evidence
        self._partition = partition
        self._key = key
        self._mint = mint
        self._end = end
        self._state = SessionState()
        self._place = 0
        self._verdicts: dict[str, Verdict] = {}
        self._mine: set[str] = set()
        self._sends: set[asyncio.Task[None]] = set()
        self.fence: str | None = None

    @property
    def next_seq(self) -> int:
        """The next seq as far as it has folded."""
        return self._state.next_seq

    async def refresh(self) -> SessionState:
        """Folds up to the present log end. Raises Unavailable."""
        end = (await self._log.ends([self._partition], TIMEOUT_MS))[self._partition]
        while self._place < end:
            for row in await self._log.read(self._partition, self._place, 100, TIMEOUT_MS):
                if row.offset < self._place:
                    continue
                self._place = row.offset + 1
                if row.key == self._key:
                    self._fold(read_record(row.headers, row.value), row.offset)
        return self._state

    def _fold(self, record: Record | None, offset: int) -> None:
        verdict = accept(self._state, record, offset)
        if verdict.id in self._mine:
            # The first verdict on an id is the one that counts.
            self._verdicts.setdefault(verdict.id, verdict.told())

    async def run(self, asks: Sequence[Ask]) -> None:
        """Writes the asks in a pipeline and notes what became of each. Never raises for the weather."""
        waiting = list(asks)
        begun = self._end()
        for ask in asks:
            self._evidence.asks[ask.number] = ask
        for _ in range(ATTEMPTS_MAX):
            if not waiting:
                return
            try:
                state = await self.refresh()
            except Unavailable:
                break
            sent = self._send_all(waiting, state, begun)
            waiting = await self._outcomes(sent, begun)
        for ask in waiting:
            self._tell(ask, begun, "rejected", code="overloaded")

    def _send_all(self, asks: Sequence[Ask], state: SessionState, begun: int) -> list[tuple[Ask, Record]]:
        sent: list[tuple[Ask, Record]] = []
        ahead = restore(pieces(state)) if state.status != "absent" else SessionState()
        for ask in asks:
            try:
                record = self._record(ask, ahead)
            except LedgerError as refusal:
                self._refuse(ask, begun, refusal.code, pipelined=bool(sent))
                continue
            verdict = preview(ahead, record)
            # Fences are left to the log: a zombie does not know that it is one.
            if verdict.outcome == "rejected" and verdict.code != "fenced":
                self._refuse(ask, begun, verdict.code, pipelined=bool(sent))
                continue
            self._mine.add(record.id)
            task = asyncio.get_running_loop().create_task(self._send(record))
            self._sends.add(task)
            task.add_done_callback(self._sends.discard)
            sent.append((ask, record))
        return sent

    def _refuse(self, ask: Ask, begun: int, code: str, *, pipelined: bool) -> None:
        # What stands before it in the pipeline may fail, and then the refusal would be wrong.
        self._tell(ask, begun, "rejected", code="overloaded" if pipelined else code)

    async def _send(self, record: Record) -> None:
        try:
            await self._log.produce(self._partition, self._key, record.headers(), record.value, TIMEOUT_MS)
        except ProduceUnknown:
            return
        except Unavailable:
            self._verdicts.setdefault(record.id, Verdict("rejected", record.id, "unavailable"))

    async def _outcomes(self, sent: Sequence[tuple[Ask, Record]], begun: int) -> list[Ask]:
        """Tells what was decided; returns the asks that may be tried again."""
        loop = asyncio.get_running_loop()
        deadline = loop.time() + PATIENCE_S
        while loop.time() < deadline and any(record.id not in self._verdicts for _, record in sent):
            await asyncio.sleep(POLL_S)
            try:
                await self.refresh()
            except Unavailable:
                continue
        again = []
        for ask, record in sent:
            verdict = self._verdicts.get(record.id)
            if verdict is None:
                self._tell(ask, begun, "unknown", commit_id=record.id)
            elif verdict.landed:
                self._accepted(ask, begun, record, verdict)
            elif verdict.code in ("seq-conflict", "chain-conflict", "unavailable") and ask.expected_seq is None:
                again.append(ask)
            else:
                self._tell(ask, begun, "rejected", code=verdict.code, commit_id=record.id)
        return again

    def _accepted(self, ask: Ask, begun: int, record: Record, verdict: Verdict) -> None:
        fence = ""
        if ask.kind == "claim":
            claim = msgspec.json.decode(record.value)
            fence = self.fence = f"{claim['epoch']}:{claim['owner']}:{claim['claim']}"
        elif ask.kind == "release":
            self.fence = None
        self._evidence.answers.append(
            Answer(
                *(ask.number, "accepted", begun, self._end(), "", verdict.seq, verdict.count, verdict.offset),
                *(verdict.next_seq, verdict.chain if verdict.outcome == "accepted" else b"", fence, record.id),
            )
        )

    def _tell(self, ask: Ask, begun: int, outcome: str, code: str = "", commit_id: str = "") -> None:
        self._evidence.answers.append(Answer(ask.number, outcome, begun, self._end(), code, commit_id=commit_id))

    def _epoch(self, state: SessionState) -> int:
        return state.claim.epoch + 1

    def _record(self, ask: Ask, state: SessionState) -> Record:
        name = self._mint()
        if ask.kind == "open":
            return Record("open", name, b'{"id":"s","createdAt":0,"version":4}')
        if ask.kind == "claim":
            if state.status == "open" and state.claim.owner and not ask.takeover:
                raise LedgerError("stale-claim", "somebody holds it")
            claim = {"epoch": self._epoch(state), "owner": ask.owner, "claim": name}
            return Record("claim", name, msgspec.json.encode(claim), prev=state.root)
        if ask.kind == "release":
            return Record("release", name, b"", prev=state.root, fence=ask.fence or "")
        if ask.kind == "delete":
            return Record("delete", name, state.open_id.encode(), prev=state.chain)
        seq = state.next_seq if ask.expected_seq is None else ask.expected_seq
        lines = [encode_line(draft, seq + place, 0) for place, draft in enumerate(ask.drafts)]
        fence = state.claim.released().fence if ask.fence is None else ask.fence
        return Record("commit", name, b"\n".join(lines), prev=state.chain, fence=fence, seq=seq)
