"""A claim: the right of one agent run to write a session. Who holds it is decided by its epoch alone."""

import msgspec

from surfacelog.errors import ProtocolError
from surfacelog.records import EMPTY_FENCE, fence_text

__all__ = ["UNCLAIMED", "Claim", "read_claim"]

OWNER_BYTES_MAX = 256


class Claim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`lease_ms` and `time` (ms) are advice: they let others see that an owner is probably dead."""

    epoch: int = 0
    owner: str = ""
    claim: str = ""
    lease_ms: int = 0
    time: int = 0

    @property
    def fence(self) -> str:
        """What a commit must carry to pass while this claim stands."""
        return fence_text(self.epoch, self.owner, self.claim)

    def released(self) -> "Claim":
        """The same epoch with nobody holding it."""
        return Claim(self.epoch)


UNCLAIMED = Claim()
assert UNCLAIMED.fence == EMPTY_FENCE


def read_claim(value: bytes) -> Claim:
    """The claim in a `claim` record's value; raises `malformed`."""
    try:
        claim = msgspec.json.decode(value, type=Claim)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError("malformed", f"the claim cannot be read ({error})") from None
    if not claim.owner or not claim.claim or len(claim.owner.encode()) > OWNER_BYTES_MAX or claim.epoch < 1:
        raise ProtocolError(
            "malformed", f"a claim names an owner of 1 to {OWNER_BYTES_MAX} bytes, a claim id and an epoch"
        )
    return claim
