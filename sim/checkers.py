"""The promises of the ledger, each as a small pure function: evidence and histories in, findings out.

An empty list says that the promise was kept. No checker knows how the run was made.
"""

from collections import Counter
from collections.abc import Iterable, Mapping

import msgspec

from sim.evidence import TRANSIENT, Answer, Ask, Evidence, Read
from sim.history import History, Step
from sim.judge import deserved
from surfacelog.accept import accept
from surfacelog.records import fence_text
from surfacelog.snapshot import pieces, restore
from surfacelog.state import SessionState

__all__ = ["CHECKS", "Finding", "check_projections", "check_run"]

Histories = Mapping[bytes, History]


class Finding(msgspec.Struct, frozen=True):
    """A broken promise. `promise` names it; `text` says where and how."""

    promise: str
    text: str


def acknowledged_stays(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """What a client was told to be accepted is there, once, at the seq and offset it was told."""
    for ask in evidence.asks.values():
        history = histories.get(ask.key)
        for answer in evidence.of(ask):
            if answer.outcome != "accepted":
                continue
            if history is None:
                yield f"{_named(ask)} was accepted and its session is not in the log"
                continue
            if ask.kind == "claim" and _claimed_at(history, answer.fence) is None:
                yield f"{_named(ask)} was accepted as {answer.fence}, and no such claim was"
            if ask.kind == "release" and _holder(history, answer.end_after) == ask.fence:
                yield f"{_named(ask)} of {ask.fence} was accepted and that claim holds"
            if ask.kind == "delete" and history.state.status != "deleted":
                yield f"{_named(ask)} was accepted and the session lives"
            if ask.kind == "commit":
                yield from _commit_stays(ask, answer, history)
            if ask.kind in ("commit", "open"):
                yield from _stands_at(ask, answer, history)


def _stands_at(ask: Ask, answer: Answer, history: History) -> Iterable[str]:
    step = next((step for step in history.steps if step.offset == answer.offset), None)
    if step is None or step.record is None or step.verdict.outcome != "accepted":
        yield f"{_named(ask)} was accepted at offset {answer.offset}, where nothing was accepted"
    elif step.record.kind != ask.kind:
        yield f"{_named(ask)} was accepted at offset {answer.offset}, where a {step.record.kind} stands"


def _holder(history: History, end: int) -> str:
    """Who held the session at this log end."""
    return next((step.holder for step in history.steps if step.offset >= end), history.holder)


def _claimed_at(history: History, fence: str) -> int | None:
    for step in history.steps:
        record = step.record
        if record is not None and record.kind == "claim" and step.verdict.outcome == "accepted":
            claim = msgspec.json.decode(record.value)
            if fence_text(claim["epoch"], claim["owner"], claim["claim"]) == fence:
                return step.offset
    return None


def _commit_stays(ask: Ask, answer: Answer, history: History) -> Iterable[str]:
    for ordinal, mark in enumerate(ask.marks):
        seqs = history.marks.get(mark, [])
        if not seqs:
            yield f"{_named(ask)} was acknowledged at seq {answer.seq} and {mark} is lost"
        elif seqs[0] != answer.seq + ordinal:
            yield f"{_named(ask)} was acknowledged: {mark} at seq {answer.seq + ordinal}, and is at {seqs}"


def nothing_doubled(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """No request is in the history twice, whatever its clients were told; all of it or none of it is there."""
    for ask in evidence.asks.values():
        history = histories.get(ask.key)
        if ask.kind != "commit" or history is None:
            continue
        present = [history.marks.get(mark, []) for mark in ask.marks]
        for mark, seqs in zip(ask.marks, present, strict=True):
            if len(seqs) > 1:
                yield f"{_named(ask)} is doubled: {mark} at {seqs}"
        if any(present) and not all(present):
            yield f"{_named(ask)} is torn: {present}"


def rejected_never_present(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """What a client was told to be refused, in every attempt, is not in the history."""
    for ask in evidence.asks.values():
        final = evidence.final(ask)
        history = histories.get(ask.key)
        if final is None or final.outcome != "rejected" or history is None or ask.kind != "commit":
            continue
        for mark in ask.marks:
            if history.marks.get(mark):
                yield f"{_named(ask)} was refused ({final.code}) and {mark} is at {history.marks[mark]}"


def refusals_deserved(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """A refusal is given by a state that the session had while the request was open, never by an older one."""
    used = Counter(ask.idempotency for ask in evidence.asks.values())
    shared = {key for key, count in used.items() if key is not None and count > 1}
    for answer in evidence.answers:
        ask = evidence.asks[answer.ask]
        if answer.outcome != "rejected" or answer.code in TRANSIENT or ask.kind == "fork":
            continue
        if answer.code == "key-reused" and ask.idempotency in shared:
            continue
        if not deserved(histories.get(ask.key), ask, answer.code, answer.end_before, answer.end_after):
            where = f"between offsets {answer.end_before} and {answer.end_after}"
            yield f"{_named(ask)} was refused with {answer.code}, which no state {where} gives"


def contiguous(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """Events are numbered 0, 1, 2, … and each commit stands where its record said."""
    for history in histories.values():
        for seq, line in enumerate(history.lines):
            stated = msgspec.json.decode(line)["seq"]
            if stated != seq:
                yield f"{history.key!r}: the event at {seq} says it is {stated}"
        if history.state.next_seq != len(history.lines):
            yield f"{history.key!r}: {len(history.lines)} events, next seq {history.state.next_seq}"


def chain_intact(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """Every accepted commit was built on the history that it continues; its writer was told that chain."""
    chains: dict[bytes, dict[bytes, int]] = {}
    for history in histories.values():
        # An overflow of the windows makes a chain that no verdict tells: the state right before the next record.
        after = [step.chain for step in history.steps[1:]] + [history.state.chain]
        for step, chain in zip(history.steps, after, strict=True):
            chains.setdefault(history.key, {}).update({step.verdict.chain: step.offset, chain: step.offset})
            record = step.record
            if step.verdict.outcome != "accepted" or record is None:
                continue
            if record.kind == "commit" and record.prev != step.chain:
                yield f"{history.key!r}: the commit at offset {step.offset} was built on another history"
            if record.kind == "commit" and record.seq != step.next_seq:
                yield f"{history.key!r}: the commit at offset {step.offset} is not at seq {record.seq}"
    for answer in evidence.answers:
        ask = evidence.asks[answer.ask]
        # An idempotent repeat is told the chain of the head that it finds, which is a later one.
        if answer.outcome == "accepted" and answer.chain:
            offset = chains.get(ask.key, {}).get(answer.chain, -1)
            if offset < answer.offset:
                yield f"{_named(ask)} was told a chain that the log does not have there"


def claims_hold(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """Only the holder's commits pass; a session changes hands by takeover or after a release."""
    wishes = {ask.owner: ask for ask in evidence.asks.values() if ask.kind == "claim"}
    for history in histories.values():
        for step in history.steps:
            record = step.record
            if step.verdict.outcome != "accepted" or record is None:
                continue
            if record.kind in ("commit", "release") and record.fence != step.holder:
                yield f"{history.key!r}: offset {step.offset} was written as {record.fence}, held by {step.holder}"
            if record.kind == "claim":
                ask = wishes.get(_owner(record.value))
                held = not step.holder.endswith(":")
                if ask is not None and held and not ask.takeover:
                    yield f"{_named(ask)} took the session from {step.holder} without takeover"


def superseded_is_silent(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """Once a claim was told, nothing that was asked for under an earlier one is accepted behind it."""
    for number, told in enumerate(evidence.answers):
        claim = evidence.asks[told.ask]
        history = histories.get(claim.key)
        if claim.kind != "claim" or told.outcome != "accepted" or history is None:
            continue
        claimed_at = _claimed_at(history, told.fence)
        if claimed_at is None:
            continue
        for answer in evidence.answers[number + 1 :]:
            ask = evidence.asks[answer.ask]
            if answer.outcome != "accepted" or ask.key != claim.key or ask.kind != "commit" or ask.fence is None:
                continue
            if _epoch(ask.fence) < _epoch(told.fence) and answer.offset > claimed_at:
                yield f"{_named(ask)} wrote as {ask.fence} behind {told.fence}"


def ids_final(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """One id is decided once: never accepted twice, never accepted after it was rejected."""
    for history in histories.values():
        first: dict[str, Step] = {}
        for step in history.steps:
            if step.record is None:
                continue
            earlier = first.setdefault(step.record.id, step)
            if earlier is not step and step.verdict.outcome == "accepted":
                was = f"{earlier.verdict.outcome} at {earlier.offset}"
                yield f"{history.key!r}: {step.record.id}, {was}, was accepted at {step.offset}"


def forks_inherit(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """A fork begins with its parent's events, byte for byte; one that was told to be made has all of them."""
    for history in histories.values():
        if not history.inherited:
            continue
        parent = histories.get(history.parent)
        count = min(len(history.lines), history.inherited)
        if parent is None or history.lines[:count] != parent.lines[:count]:
            yield f"{history.key!r} does not begin as its parent {history.parent!r} does"
    for answer in evidence.answers:
        ask = evidence.asks[answer.ask]
        if ask.kind == "fork" and answer.outcome == "accepted":
            child = histories.get(ask.key)
            if child is None or len(child.lines) < child.inherited or child.inherited != answer.count:
                yield f"{_named(ask)} was made and is not whole"


def one_history(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """Every read shows a state that the session had, no older than its reader asked for."""
    for read in evidence.reads:
        history = histories.get(read.key)
        shown = None if history is None else history.prefixes.get((read.next_seq, read.generation))
        if shown is None:
            yield f"{_shown(read)} is no state of the session"
        elif read.messages is not None and read.messages != tuple(body for _, body in shown):
            yield f"{_shown(read)} shows {read.messages}, not {shown}"
        elif read.nodes is not None and read.nodes != tuple(seq for seq, _ in shown):
            yield f"{_shown(read)} shows the nodes {read.nodes}, not {shown}"
        elif read.next_seq < read.floor:
            yield f"{_shown(read)} is older than {read.floor}, which its reader asked for"


def replay_decides_alike(evidence: Evidence, histories: Histories) -> Iterable[str]:
    """A second replay, through a snapshot after every record, gives the same verdicts and the same state."""
    for history in histories.values():
        state = SessionState()
        for step in history.steps:
            if state.status != "absent":
                state = restore(pieces(state))
            again = accept(state, step.record, step.offset).told()
            if again != step.verdict:
                yield f"{history.key!r}: offset {step.offset} was {step.verdict}, then {again}"
                break
        else:
            if state.status != "absent" and pieces(state) != pieces(history.state):
                yield f"{history.key!r}: the state through snapshots is not the state of the fold"


CHECKS = (
    acknowledged_stays,
    nothing_doubled,
    rejected_never_present,
    refusals_deserved,
    contiguous,
    chain_intact,
    claims_hold,
    superseded_is_silent,
    ids_final,
    forks_inherit,
    one_history,
    replay_decides_alike,
)


def check_run(evidence: Evidence, histories: Histories) -> list[Finding]:
    """All promises that need only what was told and the log."""
    return [Finding(check.__name__, text) for check in CHECKS for text in check(evidence, histories)]


def check_projections(
    found: Mapping[bytes, Mapping[str, object]], wanted: Mapping[bytes, Mapping[str, object]]
) -> list[Finding]:
    """Every session's projection, part by part, equals the fold; none is there that the log does not have."""
    findings = []
    for key in sorted({*found, *wanted}):
        ours, theirs = wanted.get(key, {}), found.get(key, {})
        for part in sorted({*ours, *theirs}):
            if ours.get(part) != theirs.get(part):
                text = f"{key!r} {part}: {theirs.get(part)!r} is not {ours.get(part)!r}"
                findings.append(Finding("projection_equals_fold", text))
    return findings


def _owner(value: bytes) -> str:
    return str(msgspec.json.decode(value)["owner"])


def _epoch(fence: str) -> int:
    return int(fence.partition(":")[0] or 0)


def _named(ask: Ask) -> str:
    return f"{ask.client}'s {ask.kind} #{ask.number} of {ask.key.decode()}"


def _shown(read: Read) -> str:
    return f"{read.client}'s read of {read.key.decode()} at seq {read.next_seq}, generation {read.generation},"
