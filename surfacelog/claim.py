"""A claim: the right of one agent run to write a session. Who holds it is decided by its epoch alone."""

from typing import Annotated

import msgspec
from msgspec import Meta

from surfacelog.errors import ProtocolError
from surfacelog.records import EMPTY_FENCE, fence_text

__all__ = ["UNCLAIMED", "Claim", "read_claim"]

OWNER_BYTES_MAX = 256
CLAIM_ID_BYTES_MAX = 256
Count = Annotated[int, Meta(ge=0, le=2**53)]


class Claim(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """`lease_ms` and `time` (ms) are advice: they let others see that an owner is probably dead."""

    epoch: Count = 0
    owner: str = ""
    claim: str = ""
    lease_ms: Count = 0
    time: Annotated[int, Meta(ge=-(2**53), le=2**53)] = 0

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
    names = (claim.owner, OWNER_BYTES_MAX), (claim.claim, CLAIM_ID_BYTES_MAX)
    if claim.epoch < 1 or not all(0 < len(name.encode()) <= size for name, size in names):
        raise ProtocolError(
            "malformed", f"a claim names an owner and a claim id of 1 to {OWNER_BYTES_MAX} bytes, and an epoch"
        )
    return claim
