"""Claims, releases and deletes as records: who may write a session, and when it ends."""

import msgspec

from surfacelog.claim import OWNER_BYTES_MAX, Claim
from surfacelog.errors import ProtocolError
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["ClaimIntent", "Claimed", "DeleteIntent", "ReleaseIntent"]

LEASE_MS_MAX = 7 * 86_400_000


class Claimed(msgspec.Struct, frozen=True, rename="camel"):
    """A session held. `fence` is what every append of the holder carries. `next_seq`, `chain` (hex): the head at
    the claim; `lease_until`: ms, advice for others."""

    epoch: int
    owner: str
    claim_id: str
    fence: str
    lease_until: int
    next_seq: int
    chain: str
    token: str


class ClaimIntent:
    """The epoch after the present one for `owner`. A session that another owner holds is left alone unless
    `takeover`; an earlier run of the same owner is superseded."""

    __slots__ = ("_claim_id", "_lease_ms", "_owner", "_takeover", "claim")
    # The log compares epochs; that nobody holds the session is ours to know.
    certain = True

    def __init__(self, owner: str, claim_id: str, *, takeover: bool = False, lease_ms: int = 0) -> None:
        if not 0 < len(owner.encode("utf-8", "surrogatepass")) <= OWNER_BYTES_MAX:
            raise ProtocolError("bad-request", f"an owner's name has 1 to {OWNER_BYTES_MAX} bytes")
        if not 0 <= lease_ms <= LEASE_MS_MAX:
            raise ProtocolError("bad-request", f"lease_ms is 0 to {LEASE_MS_MAX}")
        self._owner = owner
        self._claim_id = claim_id
        self._takeover = takeover
        self._lease_ms = lease_ms
        self.claim = Claim()

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The claim record; raises `fenced` when somebody else holds the session."""
        held = state.claim
        if state.status == "open" and held.owner and held.owner != self._owner and not self._takeover:
            raise ProtocolError(
                "fenced",
                "another owner holds the session; wait until it is released, or claim it with takeover",
                owner=held.owner,
                epoch=held.epoch,
                lease_until=held.time + held.lease_ms,
            )
        self.claim = Claim(held.epoch + 1, self._owner, self._claim_id, self._lease_ms, now_ms)
        return Record("claim", record_id, msgspec.json.encode(self.claim), prev=state.root, reply=reply)

    def excuse(self, state: SessionState) -> Verdict | None:
        """This claim stands already."""
        if state.claim.claim != self._claim_id or not state.claim.owner:
            return None
        self.claim = state.claim
        return Verdict("accepted", "", "", state.next_seq, 0, -1, state.next_seq, state.chain)


class ReleaseIntent:
    """Gives up the claim that `fence` names."""

    __slots__ = ("_fence",)
    certain = False

    def __init__(self, fence: str) -> None:
        self._fence = fence

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The release record."""
        return Record("release", record_id, b"", prev=state.root, fence=self._fence, reply=reply)

    def excuse(self, state: SessionState) -> Verdict | None:
        """The claim of this fence is over, and nobody has taken the session since."""
        if state.claim.owner or state.status != "open" or self._fence.partition(":")[0] != str(state.claim.epoch):
            return None
        return Verdict("accepted", "", "", state.next_seq, 0, -1, state.next_seq, state.chain)


class DeleteIntent:
    """Ends a session for good; its id is never used again."""

    __slots__ = ()
    certain = False

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The delete record; it names the open that it ends."""
        return Record("delete", record_id, state.open_id.encode(), prev=state.chain, reply=reply)

    def excuse(self, state: SessionState) -> Verdict | None:
        """Nothing excuses it: a second delete is told `gone`."""
        return None
