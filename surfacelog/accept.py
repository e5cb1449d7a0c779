"""The one decision of the protocol: what a record at its place in the log does to its session.

Pure and total: any bytes give a verdict, but for a record of a later version, which stops the fold. Projector,
producer, rebuild, cold read and tests call `accept`; nobody else decides. The state changes only as said here.
"""

from collections.abc import Iterable

import msgspec

from surfacelog.claim import read_claim
from surfacelog.contract import SURFACE_TYPES
from surfacelog.derive import derive
from surfacelog.errors import ContractError, LedgerError
from surfacelog.events import Checked, check_lines, decode_event, read_lines
from surfacelog.header import read_header
from surfacelog.records import (
    KINDS,
    RECORD_VERSION,
    KeyClaim,
    Record,
    chain_next,
    chain_skip,
    chain_start,
    epoch_of,
)
from surfacelog.state import SessionState
from surfacelog.surface import Plan, Surface
from surfacelog.verdict import Verdict

__all__ = ["EVENTS_MAX", "accept", "apply_all", "preview"]

EVENTS_MAX = 10_000
_UNKNOWN = -1


def accept(state: SessionState, record: Record | None, offset: int) -> Verdict:
    """The verdict on the record at `offset`. `None` is a record that could not be read. On return the state
    remembers the record's id and offset; only an accepted record changes anything else. The verdict's head is the
    one after all of it. Raises `faulted` for a record of a later version."""
    state.last = offset
    if record is None:
        verdict = Verdict("rejected", "", "malformed", offset=offset)
        state.count(verdict)
        return verdict
    repeat = _repeat(state, record)
    if repeat is not None:
        state.count(repeat)
        return repeat
    return _remember(state, _decide(state, record, offset), offset)


def preview(state: SessionState, record: Record) -> Verdict:
    """What `accept` would say if the record came next. An accepted record moves the state on, as a writer
    that pipelines needs it; a rejected one leaves no trace. Where the windows overflow, the chain behind depends
    on an offset that nobody knows yet: it is empty then, and nothing more fits."""
    verdict = _repeat(state, record)
    if verdict is None:
        verdict = _decide(state, record, _UNKNOWN)
        if verdict.outcome == "accepted":
            return _remember(state, verdict, _UNKNOWN)
    return verdict


def _repeat(state: SessionState, record: Record) -> Verdict | None:
    """The verdict on a record whose id is kept: whatever it was told stays so."""
    earlier = state.recent.get(record.id)
    if earlier is None:
        return None
    return msgspec.structs.replace(earlier, outcome="duplicate", first=earlier.first or earlier.outcome, plans=())


def _remember(state: SessionState, verdict: Verdict, offset: int) -> Verdict:
    state.remember(verdict)
    if not state.windows_full:
        return verdict
    state.drop_windows(b"" if offset == _UNKNOWN else chain_skip(state.chain, offset))
    return msgspec.structs.replace(verdict, chain=state.chain)


def _decide(state: SessionState, record: Record, offset: int) -> Verdict:
    if record.v != RECORD_VERSION and record.v > 0:
        raise LedgerError("faulted", f"record version {record.v} is not known here; upgrade before reading on")
    if record.kind not in KINDS or record.v != RECORD_VERSION or not record.id:
        return _rejected(state, record, offset, "malformed", "unknown kind or no id")
    try:
        return _HANDLERS[record.kind](state, record, offset)
    except LedgerError as refusal:
        return _rejected(state, record, offset, refusal.code, refusal.message)


def _rejected(
    state: SessionState, record: Record, offset: int, code: str, message: str = "", epoch: int = 0
) -> Verdict:
    head = state.next_seq, state.chain
    return Verdict("rejected", record.id, code, record.seq, 0, offset, *head, message=message, epoch=epoch)


def _accepted(state: SessionState, record: Record, offset: int, seq: int, plans: tuple[Plan, ...] = ()) -> Verdict:
    state.chain = chain_next(state.chain, record)
    state.accepted += 1
    return Verdict("accepted", record.id, "", seq, len(plans), offset, state.next_seq, state.chain, plans=plans)


# Each handler reads its record before it looks at the state: what cannot be read is malformed wherever it lies.
def _open(state: SessionState, record: Record, offset: int) -> Verdict:
    header = read_header(record.value)
    if state.status != "absent":
        return _rejected(state, record, offset, "gone" if state.status == "deleted" else "session-exists")
    state.status = "open"
    state.open_id = record.id
    state.header = header
    state.header_raw = record.value
    state.first_offset = offset
    state.surface = Surface(header.contract, checks=header.checks, vocabulary=header.vocabulary)
    state.chain = state.root = chain_start(record.id, record.value)
    state.accepted = 1
    # What was refused before there was a session has no place to be kept: a projection never saw a state for it.
    state.rejected = {}
    return Verdict("accepted", record.id, "", 0, 0, offset, 0, state.chain)


def _missing(state: SessionState, record: Record, offset: int) -> Verdict | None:
    if state.status == "open":
        return None
    return _rejected(state, record, offset, "gone" if state.status == "deleted" else "no-session")


def _delete(state: SessionState, record: Record, offset: int) -> Verdict:
    missing = _missing(state, record, offset)
    if missing is not None:
        return missing
    if record.value.decode("ascii", "replace") != state.open_id:
        return _rejected(state, record, offset, "no-session", "the delete names another open")
    verdict = _accepted(state, record, offset, state.next_seq)
    state.status = "deleted"
    state.surface = Surface(base_seq=verdict.next_seq)
    return verdict


def _claim(state: SessionState, record: Record, offset: int) -> Verdict:
    claim = read_claim(record.value)
    missing = _missing(state, record, offset)
    if missing is not None:
        return missing
    if not _rooted(state, record):
        return _rejected(state, record, offset, "chain-conflict")
    if claim.epoch != state.claim.epoch + 1 or state.forking:
        return _rejected(state, record, offset, "stale-claim", epoch=claim.epoch)
    state.claim = claim
    return _accepted(state, record, offset, state.next_seq)


def _release(state: SessionState, record: Record, offset: int) -> Verdict:
    missing = _missing(state, record, offset)
    if missing is not None:
        return missing
    if not _rooted(state, record):
        return _rejected(state, record, offset, "chain-conflict")
    if record.fence != state.fence or not state.claim.owner:
        # It fits as soon as the claim that it gives up is accepted, and until the next one is.
        epoch = epoch_of(record.fence)
        return _rejected(state, record, offset, "fenced", epoch=epoch + 1 if epoch > state.claim.epoch else 0)
    state.claim = state.claim.released()
    return _accepted(state, record, offset, state.next_seq)


def _rooted(state: SessionState, record: Record) -> bool:
    """Whether a claim or release was made for this open, and since the ids of others like it were forgotten. It
    needs no more of the history: who holds the session is decided by epochs, past the head as well."""
    return record.prev == state.root and state.root != b""


def _commit(state: SessionState, record: Record, offset: int) -> Verdict:
    lines = read_lines(record.value)
    if record.seq < 0 or not 0 < len(lines) <= EVENTS_MAX:
        return _rejected(state, record, offset, "malformed", f"a commit has a seq and 1 to {EVENTS_MAX} events")
    events = _read_events(lines)
    missing = _missing(state, record, offset)
    if missing is not None:
        return missing
    if record.key is not None:
        answered = _by_key(state, record, record.key, offset)
        if answered is not None:
            return answered
    surface = state.surface
    if record.fence != state.fence:
        return _rejected(state, record, offset, "fenced")
    if record.seq != surface.next_seq:
        return _rejected(state, record, offset, "seq-conflict")
    if record.prev != state.chain or not state.chain:
        return _rejected(state, record, offset, "chain-conflict")
    plans = apply_all(surface, events, lines)
    verdict = _accepted(state, record, offset, record.seq, plans)
    if record.key is not None:
        state.use_key(record.key, verdict)
    _count_events(state, verdict, lines)
    return verdict


def _read_events(lines: list[bytes]) -> list[Checked]:
    try:
        return list(check_lines(lines))
    except ContractError as error:
        raise LedgerError("malformed", error.message) from None


def _by_key(state: SessionState, record: Record, key: KeyClaim, offset: int) -> Verdict | None:
    """An idempotent repeat is answered before anything else is looked at: it would fail fence, seq and chain."""
    used = state.keys.get(key.key)
    if used is None:
        return _rejected(state, record, offset, "key-expired") if key.since < state.keys_floor else None
    if used.request != key.request:
        return _rejected(state, record, offset, "key-reused")
    return Verdict(
        "duplicate",
        record.id,
        "",
        used.seq,
        used.count,
        used.offset,
        state.next_seq,
        state.chain,
        first="accepted",
    )


def apply_all(surface: Surface, events: Iterable[Checked], lines: Iterable[bytes]) -> tuple[Plan, ...]:
    """Plans and applies every event in turn; takes all of it back and raises when one breaks a rule. `lines`: the
    events as they are written."""
    done: list[Plan] = []
    try:
        for event, line in zip(events, lines, strict=True):
            # The values are read once, and the line only cut where a message is derived.
            message = derive(decode_event(line)) if event.type in SURFACE_TYPES else None
            plan = surface.plan_values(event, message)
            surface.apply(plan)
            done.append(plan)
    except BaseException:
        for plan in reversed(done):
            surface.revert(plan)
        raise
    return tuple(done)


def _count_events(state: SessionState, verdict: Verdict, lines: list[bytes]) -> None:
    changes = state.changes
    for plan in verdict.plans:
        if plan.op == "append":
            state.transcript_count += 1
            if changes is not None:
                changes.transcript.append(plan.seq)
    if changes is not None:
        changes.plans.extend(verdict.plans)
        changes.lines.extend(lines)
        changes.commits.append((verdict.seq, verdict.offset))


_HANDLERS = {"open": _open, "commit": _commit, "claim": _claim, "release": _release, "delete": _delete}
