"""One session folded anew from the log, when its keys are damaged; all other sessions stay as they are."""

import logging
from collections import deque
from collections.abc import Awaitable, Callable
from contextlib import suppress

import msgspec

from producer.cache import CacheUnavailable
from producer.checkpoint import Checkpoint, DirEntry
from producer.log import LogRecord, Unavailable
from producer.state_reader import STATE_SCRIPT, StateView, parse_states, state_request
from projector.commit import Call
from projector.delta import Delta, MessageList
from projector.held import Held
from projector.opening import check_place
from projector.scan import session_records, still_there
from projector.session_write import TailBounds, write_session
from projector.site import Site
from projector.staging import STAGE_BYTES_MAX, STAGE_VALUES_MAX, StagingLost, stage
from projector.trouble import Moved
from surfacelog.accept import accept
from surfacelog.derive import offload
from surfacelog.errors import LedgerError, ProtocolError
from surfacelog.keys import SessionKeys, messages_pointer
from surfacelog.records import read_record
from surfacelog.snapshot import pieces
from surfacelog.state import Changes, SessionState

__all__ = ["Refold", "refold_session", "retry_session"]

logger = logging.getLogger(__name__)
RETRIES = 5

Name = Callable[[int], Awaitable[None]]


class Refold:
    """A session's state with all that its keys hold beside it. `fault`: (code, offset) of a record that cannot be
    folded; it and those behind it are `parked`. When it came to light here the state is worth nothing: fold again
    with the fault known."""

    def __init__(self, bounds: TailBounds, fault: tuple[str, int] | None = None) -> None:
        self.state = SessionState()
        self.state.changes = Changes()
        self.bodies: dict[int, bytes] = {}
        self.transcript: list[int] = []
        self.commits: list[tuple[int, int]] = []
        self.tail: deque[bytes] = deque(maxlen=bounds.events_max)
        self.fault = fault
        self.newest: list[bytes] = []
        self.parked: list[int] = []

    def take(self, record: LogRecord) -> None:
        """Folds one record of the session; `newest` are the events it brought."""
        self.newest = []
        if self.fault is not None and record.offset >= self.fault[1]:
            self.parked.append(record.offset)
            return
        try:
            accept(self.state, read_record(record.headers, record.value), record.offset)
        except Exception as error:
            code = error.code if isinstance(error, LedgerError) else "faulted"
            self.fault = (code, record.offset)
            self.parked.append(record.offset)
            return
        self._keep(self.state.drain())

    def _keep(self, changes: Changes) -> None:
        self.transcript += changes.transcript
        self.commits += changes.commits
        self.newest = changes.lines
        self.tail.extend(changes.lines)
        for plan in changes.plans:
            for node in plan.removed:
                self.bodies.pop(node.seq, None)
            if plan.added is not None and plan.message is not None:
                self.bodies[plan.added.seq] = plan.message
            for _, _, new in plan.changed:
                if new.seq in self.bodies:
                    self.bodies[new.seq] = offload(self.bodies[new.seq], new.offloaded)

    @property
    def reached(self) -> int:
        """The offset of the newest record that was folded or parked, -1 before the first."""
        return self.parked[-1] if self.parked else self.state.last

    @property
    def messages(self) -> list[bytes]:
        """The derived messages in surface order."""
        return [self.bodies[node.seq] for node in self.state.surface.entries if not node.empty]

    def delta(self) -> Delta:
        """All of it, to be written over whatever is there."""
        found = pieces(self.state)
        return Delta(
            rows=found.surface,
            rewritten=True,
            rebuilt=MessageList([self.messages]),
            transcript=self.transcript,
            commits=self.commits,
            lines=list(self.tail),
            recent=found.recent,
            keys=found.keys,
            tables=dict(self.state.surface.headers),
            fresh=True,
        )


async def refold_session(
    site: Site, place: Checkpoint, session: bytes, *, killer: int = -1, name: Name | None = None
) -> None:
    """Folds the session from its first record up to the checkpoint and writes all of its keys anew. A parked
    session is folded up to where it was parked and no further. `killer`: the offset of a record that kills who
    folds it; its session is parked there. `name`: told each offset before it is folded. A session that the log
    no longer gives, or that cannot be written, is parked as it is. Raises Moved when the checkpoint moved
    meanwhile, CacheUnavailable and Unavailable."""
    view = await _look(site, session)
    seen = view.checkpoint
    if seen is None or (seen.next, seen.epoch) != (place.next, place.epoch):
        raise Moved("the checkpoint moved before a session was refolded")
    call = Call()
    check_place(call, site.keys, place)
    entry = view.entry
    if entry is None:
        # The directory never heard of it: what is there is left of an earlier filling of the cache.
        _clear(call, site.keys.session(session), view.meta.get(b"mk", b""))
    else:
        fault = (entry.code, entry.at) if entry.status == "faulted" else None
        if killer >= 0 and (fault is None or killer < fault[1]):
            fault = ("faulted", killer)
        try:
            await _rewrite(site, call, session, view, entry, place.next, fault, name, entry.last)
        except (Moved, Unavailable, CacheUnavailable):
            raise
        except StagingLost:
            raise Moved("a message list was lost while a session was refolded") from None
        except Exception as error:
            code = error.code if isinstance(error, LedgerError) else "faulted"
            fields = {"partition": site.partition, "session": session.decode("ascii", "replace"), "code": code}
            logger.exception("a session is parked: it cannot be folded anew", extra=fields)
            call = _strand(site, place, session, entry, code)
    try:
        failed = await call.run(site.cache, site.nonce)
    except StagingLost:
        raise Moved("what was staged of a session is not there any more") from None
    if failed:
        raise Moved("the checkpoint moved while a session was refolded")


async def retry_session(site: Site, session: bytes) -> DirEntry:
    """Folds a parked session anew, beside a worker that goes on with the others; what the directory says of it
    then (`faulted` when it fails again). Raises `no-session` when no such session is parked, `overloaded` when its
    records come faster than they are folded, `log-truncated`, CacheUnavailable and Unavailable."""
    for _ in range(RETRIES):
        # Asked before the look: what is parked between the two makes the check below fail.
        parked = await site.cache.call("LLEN", site.keys.session(session).parked)
        newest = int(await site.cache.call("LINDEX", site.keys.session(session).parked, -1) or -1)
        view = await _look(site, session)
        if view.entry is None or view.entry.status != "faulted" or view.checkpoint is None:
            raise ProtocolError("no-session", "no session of this id is parked")
        call = Call()
        call.check(session, "HGET", site.keys.checkpoint, view.checkpoint.epoch.encode(), "epoch")
        call.check(session, "HGET", site.keys.directory, view.entry.encode(), session.decode("ascii"))
        # All records of a parked session go on this list, so an equal length means that none came meanwhile.
        call.check(session, "LLEN", site.keys.session(session).parked, parked)
        newest = max(newest, view.entry.last)
        entry = await _rewrite(site, call, session, view, view.entry, view.checkpoint.next, None, None, newest)
        with suppress(StagingLost):
            if not await call.run(site.cache, site.nonce):
                return entry
    raise ProtocolError("overloaded", "the session's records come faster than they are folded; try again later")


def _strand(site: Site, place: Checkpoint, session: bytes, before: DirEntry, code: str) -> Call:
    """Parks the session as it is: what its keys still hold may be all that is left of it."""
    call = Call()
    check_place(call, site.keys, place)
    if before.status != "faulted":
        entry = msgspec.structs.replace(before, status="faulted", code=code, at=place.next)
        call.write("HSET", site.keys.directory, (session, entry.encode()))
        call.write("HSET", site.keys.faulted, (session, b"1"))
    return call


async def _look(site: Site, session: bytes) -> StateView:
    names, args = state_request(site.keys, [(session, b"")])
    return parse_states(await site.cache.run(STATE_SCRIPT, names, args), [None])[0]


async def _fold(
    site: Site, session: bytes, first: int, until: int, fault: tuple[str, int] | None, name: Name | None
) -> Refold:
    refold = Refold(site.bounds, fault)
    async for record in session_records(site, session, first, until):
        if name is not None:
            await name(record.offset)
        refold.take(record)
        if refold.fault is not fault:
            break
    return refold


async def _rewrite(
    site: Site,
    call: Call,
    session: bytes,
    view: StateView,
    before: DirEntry,
    until: int,
    fault: tuple[str, int] | None,
    name: Name | None,
    newest: int,
) -> DirEntry:
    """`newest`: a record that was folded or parked before, so the log must still give it."""
    refold = await _fold(site, session, before.first, until, fault, name)
    if refold.fault is not fault:
        refold = await _fold(site, session, before.first, until, refold.fault, name)
    if refold.reached < newest and await still_there(site, session, newest):
        raise Unavailable(f"the log told an end before {newest}, which was folded")
    if refold.reached < newest or (refold.state.status == "absent" and refold.fault is None):
        raise ProtocolError("log-truncated", "the log no longer gives what was folded of this session")
    held = Held(site.keys.session(session))
    held.pointer = view.meta.get(b"mk", b"")
    state = held.state = refold.state
    # A session that is parked at its open has no state to show, whatever was refused before it.
    entry = msgspec.structs.replace(before, last=-1)
    if state.status == "absent":
        _clear(call, held.own, held.pointer)
    else:
        delta = refold.delta()
        pointer = messages_pointer(state.surface.content_generation, site.nonce())
        assert delta.rebuilt is not None
        staged = None
        if delta.rebuilt.size_bytes > STAGE_BYTES_MAX or delta.rebuilt.new_count > STAGE_VALUES_MAX:
            fresh, old = held.own.messages_at(pointer), held.own.messages_at(held.pointer)
            staged = await stage(site.cache, fresh, old, delta.rebuilt)
        entry = write_session(call, session, held, delta, site.bounds, pointer, staged).entry
    if refold.fault is not None:
        code, offset = refold.fault
        entry = msgspec.structs.replace(entry, status="faulted", code=code, at=offset)
        if refold.parked:
            # None, where it was parked as it was and no record came since.
            call.write("RPUSH", held.own.parked, refold.parked)
        call.write("HSET", site.keys.faulted, (session, b"1"))
    else:
        call.write("HDEL", site.keys.faulted, (session,))
    call.write("HSET", site.keys.directory, (session, entry.encode()))
    return entry


def _clear(call: Call, own: SessionKeys, pointer: bytes) -> None:
    for key in (own.meta, own.surface, own.transcript, own.tail, own.offsets, own.recent):
        call.write("DEL", key)
    for key in (own.used_keys, own.headers, own.tools, own.parked, own.messages_at(pointer)):
        call.write("DEL", key)
