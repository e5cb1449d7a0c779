"""Forks: a prefix of one session copied into another's partition, by any machine, from wherever the last one
stopped.

The copy is commits under the fork's own fence, which nothing else passes until the prefix is whole. The last of
them also carries the mark and the closers, so that a child is either still forking or complete."""

from collections.abc import Sequence

import msgspec

from producer.engine import Engine
from producer.opening import OpenIntent
from producer.prefix import prefix_lines
from producer.requests import Asks
from producer.resuming import draft_of
from producer.sight import Seen
from surfacelog.accept import EVENTS_MAX
from surfacelog.errors import ProtocolError
from surfacelog.events import decode_event, encode_line
from surfacelog.fork import fork
from surfacelog.header import Header
from surfacelog.inbox import PendingInput
from surfacelog.keys import record_key
from surfacelog.records import Record, fence_text
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["CopyIntent", "Forked", "Forks"]

CHUNK_BYTES = 1 << 19
CHUNK_EVENTS = 1000


class Forked(msgspec.Struct, frozen=True, rename="camel"):
    """A child that is complete. `boundary`: seq of the last inherited event. `next_seq`: of what it writes itself.
    `pending`: input that was queued in the parent at the cut, which the child neither runs nor loses silently."""

    session: str
    open_id: str
    parent: str
    boundary: int
    next_seq: int
    pending: tuple[PendingInput, ...]
    token: str


class CopyIntent:
    """A piece of the copy: lines from seq `seq` on, exactly as the parent holds them."""

    __slots__ = ("_fence", "_lines", "_open_id", "_seq")
    certain = False

    def __init__(self, open_id: str, seq: int, lines: Sequence[bytes]) -> None:
        self._open_id = open_id
        self._fence = fence_text(0, "fork", open_id)
        self._seq = seq
        self._lines = lines

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The commit of this piece."""
        value = b"\n".join(self._lines)
        return Record("commit", record_id, value, prev=state.chain, fence=self._fence, seq=self._seq, reply=reply)

    def excuse(self, state: SessionState) -> Verdict | None:
        """Whoever wrote these seqs copied the same lines: nothing else passes the fence."""
        end = self._seq + len(self._lines)
        if state.open_id != self._open_id or state.status != "open" or state.next_seq < end:
            return None
        return Verdict("accepted", "", "", self._seq, len(self._lines), -1, state.next_seq, state.chain)


class Forks:
    """`ask` hands an intent to a session's writer."""

    def __init__(self, engine: Engine, ask: Asks) -> None:
        self._engine = engine
        self._ask = ask

    async def fork(
        self, tenant: str, parent: str, child: Header, boundary: int, open_id: str | None, timeout_ms: int
    ) -> Forked:
        """See `Producer.fork`."""
        source = await self._engine.fresh(record_key(tenant, parent), timeout_ms)
        header = _header(source.state, parent, child, boundary)
        opened = await self._open(tenant, header, open_id, timeout_ms)
        lines, own, pending = await self._plan(tenant, parent, source, boundary)
        whole = lines + own
        token = ""
        at = opened.next_seq
        while at < len(lines):
            piece = _piece(whole, at, len(lines))
            intent = CopyIntent(opened.open_id, at, piece)
            try:
                landed = await self._ask(tenant, child.id, intent, timeout_ms, sum(map(len, piece)))
                token, at = landed.token(at + len(piece) - 1), at + len(piece)
            except ProtocolError as error:
                if error.code != "seq-conflict" or error.detail["next_seq"] <= at:
                    raise
                at = error.detail["next_seq"]  # Another machine copies too, in other pieces.
        return Forked(child.id, opened.open_id, parent, boundary, max(at, len(whole)), pending, token)

    async def _open(self, tenant: str, header: Header, open_id: str | None, timeout_ms: int) -> SessionState:
        """The child as it stands: just opened, or left half-way by an earlier call."""
        intent = OpenIntent(header, open_id or self._engine.mint_id())
        try:
            await self._ask(tenant, header.id, intent, timeout_ms)
        except ProtocolError as error:
            if error.code != "session-exists":
                raise
        state = (await self._engine.fresh(record_key(tenant, header.id), timeout_ms)).state
        there = state.header
        if (
            there is None
            or there.parent_session != header.parent_session
            or there.inherited_event_count != header.inherited_event_count
        ):
            raise ProtocolError(
                "session-exists", "a session of this id exists already and is no fork of this kind"
            )
        return state

    async def _plan(
        self, tenant: str, parent: str, source: Seen, boundary: int
    ) -> tuple[list[bytes], list[bytes], tuple[PendingInput, ...]]:
        """The inherited lines, the child's own, and the input that was queued."""
        key = record_key(tenant, parent)
        lines = [line async for line in prefix_lines(self._engine, key, source, boundary + 1)]
        assert source.state.header is not None, "an open session has a header"
        made = fork(map(decode_event, lines), boundary, source.state.header.contract)
        return (
            lines,
            [encode_line(draft_of(event), event.seq, event.time) for event in made.own],
            made.inbox.pending,
        )


def _header(state: SessionState, parent: str, child: Header, boundary: int) -> Header:
    if state.status == "deleted":
        raise ProtocolError("gone", "the parent was deleted")
    if state.header is None:
        raise ProtocolError("no-session", "no session of this id exists to fork from")
    if state.forking:
        raise ProtocolError("forking", "the parent is itself a fork whose copy is not finished; try again soon")
    if not 0 <= boundary < state.next_seq:
        raise ProtocolError(
            "bad-request", "boundary is the seq of one of the parent's events", next_seq=state.next_seq
        )
    rules = state.header
    return msgspec.structs.replace(
        child,
        contract=rules.contract,
        checks=rules.checks,
        vocabulary=rules.vocabulary,
        rules=rules.rules,
        parent_session=parent,
        is_seeded=True,
        inherited_event_count=boundary + 1,
    )


def _piece(whole: Sequence[bytes], at: int, inherited: int) -> Sequence[bytes]:
    """The lines of the next commit; the one that completes the prefix takes all that is behind it too."""
    end, size_bytes = at, 0
    while end < inherited and end - at < CHUNK_EVENTS and (size_bytes < CHUNK_BYTES or end == at):
        size_bytes += len(whole[end])
        end += 1
    assert end - at <= EVENTS_MAX, "a piece is one commit"
    return whole[at:] if end == inherited else whole[at:end]
