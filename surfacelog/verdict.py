"""What the fold decided about one record. Equal in every replay."""

from typing import Any

import msgspec

__all__ = ["Verdict"]


class Verdict(msgspec.Struct, frozen=True, gc=False, omit_defaults=True):
    """`outcome`: accepted, duplicate or rejected. `seq`, `count`: the first seq and number of events of the
    commit that counts (for a duplicate, of the earlier one). `next_seq`, `chain` (32 bytes): the head right
    after it. `first`: for a duplicate, the outcome it repeats. `epoch`: of a rejected claim or release, while a
    second copy of it could fit. `plans`: an accepted commit's, never sent."""

    outcome: str
    id: str
    code: str = ""
    seq: int = -1
    count: int = 0
    offset: int = -1
    next_seq: int = 0
    chain: bytes = b""
    first: str = ""
    message: str = ""
    epoch: int = 0
    plans: tuple[Any, ...] = ()

    @property
    def landed(self) -> bool:
        """Whether the request this record stands for is in the history."""
        return self.outcome == "accepted" or (self.outcome == "duplicate" and self.first == "accepted")

    def told(self) -> "Verdict":
        """The verdict as it is sent to whoever waits for it."""
        return msgspec.structs.replace(self, plans=()) if self.plans else self
