"""The append path of one process: many sessions, each with its own writer, over one log and one cache.

Everything that is written goes through here; every answer is the fold's verdict, or says that it is not.
"""

import asyncio
import time
from collections import OrderedDict
from collections.abc import Callable, Sequence
from random import Random
from typing import Literal

from producer.admission import Budget
from producer.append import Appended, AppendIntent, IdempotencyKey, appended
from producer.cache import Cache
from producer.claims import Claimed, ClaimIntent, DeleteIntent, ReleaseIntent
from producer.engine import Engine
from producer.forking import Forked, Forks
from producer.ids import mint_id as mint_uuid7
from producer.limits import AppendLimits
from producer.lock import FREE
from producer.log import EventLog
from producer.opening import Created, OpenIntent
from producer.requests import Intent, Landed, Request
from producer.resuming import Resumed, close_open
from producer.writer import SessionWriter
from surfacelog.errors import ProtocolError
from surfacelog.events import Draft
from surfacelog.header import Header
from surfacelog.keys import record_key
from surfacelog.verdict import Verdict

__all__ = ["Producer"]

# Headers, envelopes and what Python keeps beside the bodies.
REQUEST_BYTES = 1024
START_WAIT_S = 5.0


def _wall_clock_ms() -> int:
    return time.time_ns() // 1_000_000


class Producer:
    """`now_ms`: wall clock, for the time of events. `mint_id`: a new id that sorts by time. Methods raise
    LedgerError with the codes of `surfacelog/errors.py`; none waits longer than its `timeout_ms`."""

    def __init__(
        self,
        log: EventLog,
        cache: Cache,
        limits: AppendLimits | None = None,
        *,
        now_ms: Callable[[], int] = _wall_clock_ms,
        mint_id: Callable[[], str] = mint_uuid7,
        random: Random | None = None,
    ) -> None:
        self.limits = limits or AppendLimits()
        self._engine = Engine(
            log,
            cache,
            self.limits,
            now_ms=now_ms,
            mint_id=mint_id,
            random=random or Random(),  # noqa: S311 - it spreads waiting times
            wanted=self._wanted,
        )
        self._budget = Budget(self.limits)
        self._writers: OrderedDict[bytes, SessionWriter] = OrderedDict()
        self._nodes = 0
        self._weights: dict[bytes, int] = {}
        self._open = True

    @property
    def reply(self) -> str:
        """This producer's name on the verdict channels."""
        return self._engine.reply

    @property
    def sessions(self) -> int:
        """How many sessions have a writer, and mostly a state, in memory."""
        return len(self._writers)

    async def start(self) -> None:
        """Begins to listen for verdicts."""
        await self._engine.verdicts.start(START_WAIT_S)

    async def close(self) -> None:
        """Takes no more work, waits a little for what is in flight, and stops. What is not settled by then is told
        as what it is: not written, or unknown."""
        self._open = False
        await asyncio.gather(*(self._finish(writer) for writer in list(self._writers.values())))
        await self._engine.close()

    async def _finish(self, writer: SessionWriter) -> None:
        until = asyncio.get_running_loop().time() + self.limits.lock_ttl_ms / 1000
        while writer.busy and asyncio.get_running_loop().time() < until:
            await asyncio.sleep(self.limits.lock_retry_ms / 1000)

    async def create(
        self, tenant: str, header: Header, *, open_id: str | None = None, timeout_ms: int | None = None
    ) -> Created:
        """Opens the session `header.id`. A repeat with the same `open_id` (a UUIDv7) answers as the first did.
        Raises `session-exists`, or `gone` for an id that was deleted."""
        intent = OpenIntent(header, open_id or self._engine.mint_id())
        landed = await self._ask(tenant, header.id, intent, timeout_ms)
        verdict = landed.verdict
        return Created(
            header.id, landed.open_id, verdict.offset, verdict.chain.hex(), verdict.next_seq, landed.token(-1)
        )

    async def append(
        self,
        tenant: str,
        session: str,
        drafts: Sequence[Draft],
        *,
        expected_seq: int | None = None,
        key: IdempotencyKey | None = None,
        fence: str | None = None,
        ack: Literal["accepted", "logged"] = "accepted",
        timeout_ms: int | None = None,
    ) -> Appended:
        """Appends all events or none. `expected_seq`: the seq that the first must get. `key`: repeating the
        request with it is safe. `fence`: of the claim that the caller holds. `ack="logged"` answers when the log
        has the record, provisionally."""
        intent = AppendIntent(drafts, expected_seq=expected_seq, key=key, fence=fence)
        size_bytes = sum(len(draft.data) + REQUEST_BYTES for draft in drafts)
        landed = await self._ask(tenant, session, intent, timeout_ms, size_bytes, logged=ack == "logged")
        return appended(landed)

    async def claim(
        self,
        tenant: str,
        session: str,
        owner: str,
        *,
        takeover: bool = False,
        lease_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> Claimed:
        """Takes the right to write the session. Raises `fenced` when another owner holds it and `takeover` is not
        asked for."""
        intent = ClaimIntent(owner, self._engine.mint_id(), takeover=takeover, lease_ms=lease_ms)
        landed = await self._ask(tenant, session, intent, timeout_ms)
        claim, verdict = intent.claim, landed.verdict
        return Claimed(
            claim.epoch,
            claim.owner,
            claim.claim,
            claim.fence,
            claim.time + claim.lease_ms,
            verdict.next_seq,
            verdict.chain.hex(),
            landed.token(verdict.next_seq - 1),
        )

    async def release(self, tenant: str, session: str, fence: str, *, timeout_ms: int | None = None) -> None:
        """Gives up the claim of this fence; releasing it twice is no error. Raises `fenced` when another run has
        claimed the session since."""
        await self._ask(tenant, session, ReleaseIntent(fence), timeout_ms)

    async def delete(self, tenant: str, session: str, *, timeout_ms: int | None = None) -> None:
        """Ends the session for good. Raises `no-session`, or `gone` when it was deleted before."""
        await self._ask(tenant, session, DeleteIntent(), timeout_ms)

    async def verdict(
        self, tenant: str, session: str, commit_id: str, *, timeout_ms: int | None = None
    ) -> Verdict | None:
        """What became of a record whose outcome was unknown, from a state that is not behind the log; None when
        the state does not remember it (not there yet, or long ago). Raises `rebuilding` or `unavailable`."""
        seen = await self._engine.fresh(record_key(tenant, session), self._wait_ms(timeout_ms))
        return seen.state.recent.get(commit_id)

    async def fork(
        self,
        tenant: str,
        parent: str,
        child: Header,
        boundary: int,
        *,
        open_id: str | None = None,
        timeout_ms: int | None = None,
    ) -> Forked:
        """Makes the session `child.id` go on from the parent's event `boundary` (a seq); the child's rules are
        the parent's. Called again for a fork that was left half-way, by whichever machine, it goes on where that
        stopped. `timeout_ms` is for each step of the copy. Raises `session-exists` when the child is another
        session."""
        forks = Forks(self._engine, self._ask)
        return await forks.fork(tenant, parent, child, boundary, open_id, self._wait_ms(timeout_ms))

    async def resume(
        self,
        tenant: str,
        session: str,
        owner: str,
        *,
        takeover: bool = False,
        lease_ms: int = 0,
        timeout_ms: int | None = None,
    ) -> Resumed:
        """Claims the session and closes what an earlier run left open: its calls, step and turn. Nothing is run
        again. Raises what `claim` and `append` raise."""
        held = await self.claim(
            tenant, session, owner, takeover=takeover, lease_ms=lease_ms, timeout_ms=timeout_ms
        )
        return await close_open(self._engine, self._ask, tenant, session, held, self._wait_ms(timeout_ms))

    def _wait_ms(self, timeout_ms: int | None) -> int:
        return timeout_ms or self.limits.append_timeout_ms

    async def _ask(
        self,
        tenant: str,
        session: str,
        intent: Intent,
        timeout_ms: int | None,
        size_bytes: int = REQUEST_BYTES,
        *,
        logged: bool = False,
    ) -> Landed:
        if not self._open:
            raise ProtocolError("unavailable", "this server is shutting down; nothing was written, try another")
        key = record_key(tenant, session)
        wait_s = self._wait_ms(timeout_ms) / 1000
        deadline = asyncio.get_running_loop().time() + wait_s
        taken = await self._budget.take(size_bytes, wait_s)
        request = Request(
            intent,
            deadline,
            self._engine.deadlines,
            logged=logged,
            over=lambda: self._budget.give_back(taken),
        )
        self._writer(key).submit(request)
        try:
            return await request.future
        except asyncio.CancelledError:
            request.give_up()
            raise

    def _writer(self, key: bytes) -> SessionWriter:
        writer = self._writers.get(key)
        if writer is None:
            writer = self._writers[key] = SessionWriter(self._engine, key, self._rest)
        else:
            self._writers.move_to_end(key)
        return writer

    def _wanted(self, key: bytes) -> None:
        free = key.startswith(FREE)
        writer = self._writers.get(key.removeprefix(FREE) if free else key)
        if writer is not None:
            writer.hear_free() if free else writer.hear_wanted()

    def _rest(self, writer: SessionWriter) -> None:
        """A writer came to rest: it keeps its state as long as there is room."""
        self._nodes += writer.weight - self._weights.get(writer.key, 0)
        self._weights[writer.key] = writer.weight
        for key in list(self._writers) if self._crowded() else ():
            if not self._crowded():
                break
            if not self._writers[key].busy:
                del self._writers[key]
                self._nodes -= self._weights.pop(key, 0)

    def _crowded(self) -> bool:
        return len(self._writers) > self.limits.append_writers_max or self._nodes > self.limits.append_nodes_max
