"""Whether a refusal was deserved: what a session's state, at some place of the log, has against a request."""

import copy

import msgspec

from sim.evidence import Ask
from sim.history import History
from surfacelog.accept import accept, preview
from surfacelog.events import encode_line
from surfacelog.records import Record
from surfacelog.state import SessionState

__all__ = ["deserved"]

# What a request may be told because a record of this kind was accepted while it was under way.
_RACES = {
    "commit": ("seq-conflict", "chain-conflict"),
    "claim": ("stale-claim", "fenced", "chain-conflict"),
    "release": ("stale-claim", "fenced", "chain-conflict"),
}


def deserved(history: History | None, ask: Ask, code: str, end_before: int, end_after: int) -> bool:
    """Whether at least one state that the session had between the two log ends refuses the ask with `code`."""
    state = SessionState()
    rows = [] if history is None else history.records
    later = [row for row in rows if row[0] >= end_before]
    for offset, record in rows[: len(rows) - len(later)]:
        accept(state, record, offset)
    if _refuses(state, ask, code):
        return True
    for offset, record in later:
        if offset >= end_after:
            break
        chain = state.chain
        verdict = accept(state, record, offset)
        if state.chain != chain and verdict.outcome != "accepted" and code == "chain-conflict":
            # The windows overflowed: nothing that was on its way fits any more.
            return True
        overtaken = record is not None and verdict.outcome == "accepted" and code in _RACES.get(record.kind, ())
        if overtaken or _refuses(state, ask, code):
            return True
    return False


def _refuses(state: SessionState, ask: Ask, code: str) -> bool:
    """Whether the ledger may refuse the ask with this code now."""
    held = state.status == "open" and bool(state.claim.owner)
    if ask.kind == "read":
        return code == {"absent": "no-session", "deleted": "gone"}.get(state.status)
    if ask.kind == "claim" and held and not ask.takeover and code in ("fenced", "stale-claim", "locked"):
        return True
    if ask.kind == "commit" and code == "seq-conflict":
        return ask.expected_seq is not None and ask.expected_seq != state.next_seq
    if ask.kind == "commit" and code == "fenced" and ask.fence is None:
        return held
    if code == "key-expired":
        return ask.idempotency is not None and ask.since < state.keys_floor
    if state.status == "deleted":
        return code == "gone"
    if state.status == "absent":
        return code == "no-session" and ask.kind != "open"
    verdict = preview(copy.deepcopy(state), _record(state, ask))
    return verdict.outcome == "rejected" and verdict.code == code


def _record(state: SessionState, ask: Ask) -> Record:
    name = f"judged-{ask.number}"
    if ask.kind == "open":
        return Record("open", name, b'{"id":"s","createdAt":0,"version":4}')
    if ask.kind == "claim":
        claim = {"epoch": state.claim.epoch + 1, "owner": ask.owner, "claim": name}
        return Record("claim", name, msgspec.json.encode(claim), prev=state.root)
    if ask.kind == "release":
        return Record("release", name, b"", prev=state.root, fence=ask.fence or state.fence)
    if ask.kind == "delete":
        return Record("delete", name, state.open_id.encode(), prev=state.chain)
    lines = [encode_line(draft, state.next_seq + ordinal, 0) for ordinal, draft in enumerate(ask.drafts)]
    return Record(
        "commit",
        name,
        b"\n".join(lines),
        prev=state.chain,
        fence=state.fence if ask.fence is None else ask.fence,
        seq=state.next_seq,
    )
