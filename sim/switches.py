"""Faults planted into the protocol, one rule switched off at a time: proof that the simulation can fail.

Each one replaces product code while it lasts; product code itself has no such switch.
"""

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import msgspec

from producer.checkpoint import Checkpoint
from producer.commits import Commit
from producer.flight import Flight
from producer.requests import Landed, Request
from producer.writer import SessionWriter
from projector import opening, partition, refold
from projector.commit import Call
from projector.partition import PartitionProjection
from sim.rawwriter import RawWriter
from surfacelog import accept as core
from surfacelog.accept import _decide
from surfacelog.claim import Claim, read_claim
from surfacelog.keys import PartitionKeys
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["SWITCHES", "Switch", "switched_off"]

Handler = Callable[[SessionState, Record, int], Verdict]


@contextmanager
def _replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    mapping = isinstance(owner, dict)
    kept = owner[name] if mapping else owner.__dict__[name]
    put = owner.__setitem__ if mapping else lambda n, v: setattr(owner, n, v)
    put(name, value)
    try:
        yield
    finally:
        put(name, kept)


@contextmanager
def _handled(kind: str, change: Callable[[Handler, SessionState, Record, int], Verdict]) -> Iterator[None]:
    original: Handler = core._HANDLERS[kind]
    with _replaced(core._HANDLERS, kind, lambda state, record, offset: change(original, state, record, offset)):
        yield


@contextmanager
def no_fence() -> Iterator[None]:
    """A commit passes whatever claim it was written under."""

    def change(original: Handler, state: SessionState, record: Record, offset: int) -> Verdict:
        return original(state, msgspec.structs.replace(record, fence=state.fence), offset)

    with _handled("commit", change):
        yield


@contextmanager
def no_chain() -> Iterator[None]:
    """A commit passes whatever history it was built on."""

    def change(original: Handler, state: SessionState, record: Record, offset: int) -> Verdict:
        return original(state, msgspec.structs.replace(record, prev=state.chain), offset)

    with _handled("commit", change):
        yield


@contextmanager
def epoch_greater() -> Iterator[None]:
    """Epochs come from a counter, and any greater one takes the session."""
    counter = [0]

    def count(self: RawWriter, state: SessionState) -> int:
        counter[0] = max(counter[0], state.claim.epoch) + 1
        return counter[0]

    def claim(original: Handler, state: SessionState, record: Record, offset: int) -> Verdict:
        wanted, held = read_claim(record.value), state.claim
        if wanted.epoch <= held.epoch:
            return original(state, record, offset)
        state.claim = Claim(wanted.epoch - 1)
        verdict = original(state, record, offset)
        if verdict.outcome != "accepted":
            state.claim = held
        return verdict

    with _handled("claim", claim), _replaced(RawWriter, "_epoch", count):
        yield


def _accept_forgetful(state: SessionState, record: Record | None, offset: int) -> Verdict:
    state.last = offset
    if record is None:
        return Verdict("rejected", "", "malformed", offset=offset)
    for window in (state.recent, state.settled, state.refused):
        window.pop(record.id, None)
    verdict = _decide(state, record, offset)
    state.remember(verdict)
    return verdict


@contextmanager
def ids_not_sticky() -> Iterator[None]:
    """A record whose id was decided is decided anew."""
    kept = core.accept.__code__
    # Everybody has imported the function by its name: only its code can be changed for all.
    core.accept.__code__ = _accept_forgetful.__code__
    try:
        yield
    finally:
        core.accept.__code__ = kept


@contextmanager
def ids_first_in_first_out() -> Iterator[None]:
    """Of the decided ids only the newest 8 are kept, whatever became of them."""
    original = SessionState.remember

    def remember(self: SessionState, verdict: Verdict) -> None:
        original(self, verdict)
        places = self.settled | {name: place for name, (_, place) in self.refused.items()}
        for name in sorted(places, key=lambda name: places[name])[:-8]:
            self.settled.pop(name, None)
            self.refused.pop(name, None)
            self._forget(name)

    with _replaced(SessionState, "remember", remember):
        yield


@contextmanager
def no_look_at_the_log() -> Iterator[None]:
    """A refusal that comes late is told as it is, though it may be that of a second copy."""

    async def made(self: Flight, commit: Commit) -> None:
        return None

    with _replaced(Flight, "_made", made):
        yield


@contextmanager
def ack_on_produce() -> Iterator[None]:
    """A client is told yes as soon as the log has the record."""
    original = Flight._landed

    def landed(self: Flight, commit: Commit, verdict: Verdict, *, provisional: bool = False) -> Landed:
        return original(self, commit, verdict)

    def logged(self: Request) -> bool:
        return True

    with (
        _replaced(Flight, "_landed", landed),
        _replaced(Request, "logged", property(logged, lambda self, value: None)),
    ):
        yield


@contextmanager
def no_freshness() -> Iterator[None]:
    """A no is told from whatever state is at hand."""

    async def fresh(self: SessionWriter, request: Request) -> bool:
        return True

    with _replaced(SessionWriter, "_is_fresh", fresh):
        yield


@contextmanager
def no_checkpoint_check() -> Iterator[None]:
    """A worker writes whatever the checkpoint says."""

    def check(call: Call, keys: PartitionKeys, place: Checkpoint) -> None:
        return

    with (
        _replaced(partition, "check_place", check),
        _replaced(opening, "check_place", check),
        _replaced(refold, "check_place", check),
        _replaced(PartitionProjection, "_same_place", lambda self, place: None),
    ):
        yield


@contextmanager
def no_last_check() -> Iterator[None]:
    """A worker does not look at which record of a session was folded last."""
    original = Call.check

    def check(
        self: Call, owner: bytes, command: str, key: bytes, expected: bytes | int | None, field: str = ""
    ) -> None:
        # The directory's entry tells it as well.
        if field != "last" and not (command == "HGET" and key.endswith(b":dir")):
            original(self, owner, command, key, expected, field)

    with _replaced(Call, "check", check):
        yield


@contextmanager
def keep_on_reassignment() -> Iterator[None]:
    """A worker that gets a partition back goes on with what it held."""
    original = PartitionProjection.drop

    def drop(self: PartitionProjection) -> None:
        # Only what is dropped because a partition changed hands; after a failure everything is dropped as ever.
        if sys._getframe(1).f_code.co_name not in ("open", "_forget"):
            original(self)

    with _replaced(PartitionProjection, "drop", drop):
        yield


class Switch(msgspec.Struct, frozen=True):
    """`promises`: those of which at least one must be seen broken when the rule is off."""

    off: Callable[[], AbstractContextManager[None]]
    promises: tuple[str, ...]


_TOLD = ("ids_final", "nothing_doubled", "rejected_never_present", "acknowledged_stays")

SWITCHES: Mapping[str, Switch] = {
    "fence": Switch(no_fence, ("claims_hold",)),
    "epoch-equality": Switch(epoch_greater, ("claims_hold",)),
    "chain": Switch(no_chain, ("chain_intact",)),
    "sticky-ids": Switch(ids_not_sticky, _TOLD),
    "sticky-ids-fifo-8": Switch(ids_first_in_first_out, _TOLD),
    "look-at-the-log": Switch(no_look_at_the_log, _TOLD),
    "verdict": Switch(ack_on_produce, _TOLD),
    "freshness": Switch(no_freshness, ("refusals_deserved",)),
    "checkpoint": Switch(no_checkpoint_check, ("projection_equals_fold", "heals", "refusals_deserved")),
    "session-last": Switch(no_last_check, ("projection_equals_fold", "one_history")),
    "drop-on-reassignment": Switch(keep_on_reassignment, ("held_is_true",)),
}


def switched_off(name: str) -> AbstractContextManager[None]:
    """A context in which the named rule does not hold."""
    return SWITCHES[name].off()
