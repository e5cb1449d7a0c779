"""An append: drafts of events that become one commit, and what its caller gets back."""

from collections.abc import Sequence
from hashlib import sha256

import msgspec
from msgspec import UnsetType

from producer.requests import Landed
from surfacelog.accept import EVENTS_MAX
from surfacelog.errors import ProtocolError
from surfacelog.events import Draft, encode_line
from surfacelog.records import KeyClaim, Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["AppendIntent", "Appended", "IdempotencyKey", "appended"]

KEY_BYTES_MAX = 512
SEPARATOR = b"\x00"


class Appended(msgspec.Struct, frozen=True, rename="camel"):
    """Where the events stand: seqs `seq` to `seq + count - 1`, in the record at `offset` (-1 when only the log has
    it). `chain`: hex, of the history up to and with them; for a repeat, of the newest history
    that is certain. `next_seq`: what to expect next. `token`: hand it to a
    reader to read your own write. `provisional`: acknowledged by the log only; the verdict may still differ."""

    seq: int
    count: int
    offset: int
    chain: str
    next_seq: int
    token: str
    commit_id: str
    provisional: bool = False


def appended(landed: Landed) -> Appended:
    """The answer to an append that landed."""
    verdict = landed.verdict
    next_seq = verdict.seq + verdict.count
    return Appended(
        verdict.seq,
        verdict.count,
        verdict.offset,
        verdict.chain.hex(),
        next_seq,
        landed.token(next_seq - 1),
        landed.commit_id,
        landed.provisional,
    )


class IdempotencyKey(msgspec.Struct, frozen=True):
    """A caller's key. `since`: the head (next seq) that it knew at its first attempt, None if it knew none."""

    key: str
    since: int | None = None


class AppendIntent:
    """`expected_seq`: the seq that the first event must get. `fence`: of the claim that the caller holds;
    without one the commit passes only while nobody holds the session."""

    __slots__ = ("_drafts", "_expected_seq", "_fence", "_key", "_request", "_since")
    certain = False

    def __init__(
        self,
        drafts: Sequence[Draft],
        *,
        expected_seq: int | None = None,
        key: IdempotencyKey | None = None,
        fence: str | None = None,
    ) -> None:
        if not 0 < len(drafts) <= EVENTS_MAX:
            raise ProtocolError("bad-request", f"an append has 1 to {EVENTS_MAX} events", events=len(drafts))
        if expected_seq is not None and expected_seq < 0:
            raise ProtocolError("bad-request", "expected_seq is the seq of the next event, 0 or more")
        self._drafts = drafts
        self._expected_seq = expected_seq
        self._fence = fence
        self._key = None if key is None else _digest_of_key(key)
        self._since = expected_seq if key is None or key.since is None else key.since
        self._request = b"" if key is None else request_digest(drafts)

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The commit on this state; raises ContractError for drafts that no state takes."""
        seq = state.next_seq if self._expected_seq is None else self._expected_seq
        lines = [
            encode_line(draft, seq + place, now_ms if isinstance(draft.time, UnsetType) else draft.time)
            for place, draft in enumerate(self._drafts)
        ]
        return Record(
            "commit",
            record_id,
            b"\n".join(lines),
            prev=state.chain,
            fence=state.claim.released().fence if self._fence is None else self._fence,
            seq=seq,
            key=self._claim_of_key(state),
            reply=reply,
        )

    def excuse(self, state: SessionState) -> Verdict | None:
        """An append is excused by its key alone, and `accept` knows that."""
        return None

    def _claim_of_key(self, state: SessionState) -> KeyClaim | None:
        if self._key is None:
            return None
        if self._since is None:
            # The first attempt's head stays: the key's place in the window is told by it on every later attempt.
            self._since = state.next_seq
        return KeyClaim(self._key, self._request.decode(), self._since)


def _digest_of_key(key: IdempotencyKey) -> str:
    raw = key.key.encode("utf-8", "surrogatepass")
    if not 0 < len(raw) <= KEY_BYTES_MAX or (key.since is not None and key.since < 0):
        raise ProtocolError(
            "bad-request", f"an idempotency key has 1 to {KEY_BYTES_MAX} bytes, and since is a seq"
        )
    return sha256(raw).hexdigest()[:32]


def request_digest(drafts: Sequence[Draft]) -> bytes:
    """Hex digest of what a client asks to append, before seq and time are given. A time of the client's own is
    left out: it is for display, and a client that retries may stamp anew."""
    whole = sha256()
    for draft in drafts:
        for part in (
            draft.type.encode("utf-8", "surrogatepass"),
            bytes(draft.data),
            b"" if isinstance(draft.surface_op, UnsetType) else bytes(draft.surface_op),
            b"" if isinstance(draft.source_event_seqs, UnsetType) else bytes(draft.source_event_seqs),
            b"" if isinstance(draft.ignorable, UnsetType) else b"%d" % draft.ignorable,
        ):
            whole.update(b"%d:" % len(part))
            whole.update(part)
    return whole.hexdigest()[:32].encode()
