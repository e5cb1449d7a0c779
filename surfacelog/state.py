"""All that the fold knows of one session: its head, its claim, its surface and its windows.

Everything here is a function of the session's records; a snapshot of it plus the records behind it
gives what a replay from the first record gives.
"""

from collections import OrderedDict

import msgspec

from surfacelog.claim import UNCLAIMED, Claim
from surfacelog.header import Header
from surfacelog.records import KeyClaim, fence_text
from surfacelog.surface import Plan, Surface
from surfacelog.verdict import Verdict

__all__ = ["SETTLED_MAX", "Changes", "SessionState", "UsedKey"]

# The windows are part of `rules: 1`: every replay keeps the same.
SETTLED_MAX = 64
RECENT_MAX = 256
KEYS_MAX = 256


class UsedKey(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """A used idempotency key: the request's digest, and where its commit stands."""

    request: str
    seq: int
    count: int
    offset: int
    id: str
    ordinal: int


class Changes:
    """What records changed since the last drain, so that a projection writes only that. What came and went since
    then is in neither `recent` nor `recent_gone`. `ids_back`, `keys_back`: those that went and came anew."""

    __slots__ = (
        "commits",
        "ids_back",
        "keys",
        "keys_back",
        "keys_gone",
        "lines",
        "plans",
        "recent",
        "recent_gone",
        "transcript",
    )

    def __init__(self) -> None:
        self.plans: list[Plan] = []
        self.lines: list[bytes] = []
        self.transcript: list[int] = []
        self.commits: list[tuple[int, int]] = []
        self.recent: dict[str, tuple[int, Verdict]] = {}
        self.recent_gone: set[str] = set()
        self.keys: dict[str, UsedKey] = {}
        self.keys_gone: set[str] = set()
        self.ids_back: set[str] = set()
        self.keys_back: set[str] = set()

    def keep_id(self, name: str, ordinal: int, verdict: Verdict) -> None:
        """A verdict is kept under this id."""
        self.recent[name] = (ordinal, verdict)
        if name in self.recent_gone:
            self.recent_gone.discard(name)
            self.ids_back.add(name)

    def drop_id(self, name: str) -> None:
        """The verdict under this id is forgotten."""
        if self.recent.pop(name, None) is None or name in self.ids_back:
            self.recent_gone.add(name)

    def keep_key(self, name: str, used: UsedKey) -> None:
        """An idempotency key is kept."""
        self.keys[name] = used
        if name in self.keys_gone:
            self.keys_gone.discard(name)
            self.keys_back.add(name)

    def drop_key(self, name: str) -> None:
        """The idempotency key is forgotten."""
        if self.keys.pop(name, None) is None or name in self.keys_back:
            self.keys_gone.add(name)


class SessionState:
    """Mutable. `status`: absent, open or deleted. `last`: offset of the last record folded, any verdict. `root`:
    the chain at the open, or since the windows overflowed last; claims and releases name it."""

    __slots__ = (
        "accepted",
        "chain",
        "changes",
        "claim",
        "first_offset",
        "header",
        "header_raw",
        "keys",
        "keys_floor",
        "last",
        "open_id",
        "ordinal",
        "recent",
        "refused",
        "rejected",
        "root",
        "settled",
        "status",
        "surface",
        "transcript_count",
    )

    def __init__(self) -> None:
        self.status = "absent"
        self.open_id = ""
        self.header: Header | None = None
        self.header_raw = b""
        self.first_offset = -1
        self.last = -1
        self.chain = b""
        self.root = b""
        self.claim: Claim = UNCLAIMED
        self.surface = Surface()
        self.transcript_count = 0
        self.accepted = 0
        self.rejected: dict[str, int] = {}
        self.ordinal = 0
        self.recent: dict[str, Verdict] = {}
        self.settled: OrderedDict[str, int] = OrderedDict()
        self.refused: dict[str, tuple[int, int]] = {}
        self.keys: OrderedDict[str, UsedKey] = OrderedDict()
        self.keys_floor = 0
        self.changes: Changes | None = None

    @property
    def next_seq(self) -> int:
        """The seq that the next event will have."""
        return self.surface.next_seq

    @property
    def forking(self) -> bool:
        """Whether this is a fork whose prefix is not copied yet."""
        return (
            self.status == "open" and self.header is not None and self.next_seq < self.header.inherited_event_count
        )

    @property
    def fence(self) -> str:
        """What a commit must carry to pass now."""
        return fence_text(0, "fork", self.open_id) if self.forking else self.claim.fence

    @property
    def windows_full(self) -> bool:
        """Whether more ids are kept than the rules allow."""
        return len(self.recent) > RECENT_MAX

    def count(self, verdict: Verdict) -> None:
        """Counts a verdict; the state is otherwise untouched."""
        if verdict.outcome == "rejected":
            self.rejected[verdict.code] = self.rejected.get(verdict.code, 0) + 1

    def remember(self, verdict: Verdict) -> None:
        """Keeps the verdict under its id: a rejected one while it could still fit, others the newest 64."""
        self.count(verdict)
        if self.status == "absent":
            return
        name, changes, settled = verdict.id, self.changes, self.settled
        self.ordinal = ordinal = self.ordinal + 1
        kept = verdict.told()
        self.recent[name] = kept
        if changes is not None:
            changes.keep_id(name, ordinal, kept)
        if self.could_fit(verdict):
            self.refused[name] = (verdict.seq, ordinal)
        else:
            settled[name] = ordinal
            if len(settled) > SETTLED_MAX:
                self._forget(settled.popitem(last=False)[0])
        if self.refused and verdict.outcome == "accepted":
            for gone in [name for name in self.refused if not self.could_fit(self.recent[name])]:
                del self.refused[gone]
                self._forget(gone)

    def could_fit(self, verdict: Verdict) -> bool:
        """Whether a second copy of a refused record might be accepted one day, were its id forgotten: a commit
        until the head has passed its seq, a claim or release until another one has its epoch."""
        return verdict.outcome == "rejected" and (verdict.seq >= self.next_seq or verdict.epoch > self.claim.epoch)

    def drop_windows(self, chain: bytes) -> None:
        """Forgets every id and takes a new chain and root, on which nothing in flight can have been built."""
        self.chain = self.root = chain
        for gone in list(self.recent):
            self._forget(gone)
        self.settled.clear()
        self.refused.clear()

    def use_key(self, key: KeyClaim, verdict: Verdict) -> None:
        """Keeps an idempotency key among the newest 256."""
        used = UsedKey(key.request, verdict.seq, verdict.count, verdict.offset, verdict.id, self.ordinal)
        self.keys[key.key] = used
        changes = self.changes
        if changes is not None:
            changes.keep_key(key.key, used)
        if len(self.keys) > KEYS_MAX:
            name, oldest = self.keys.popitem(last=False)
            self.keys_floor = oldest.seq + oldest.count
            if changes is not None:
                changes.drop_key(name)

    def _forget(self, name: str) -> None:
        del self.recent[name]
        if self.changes is not None:
            self.changes.drop_id(name)

    def drain(self) -> Changes:
        """What changed since the last call; starts anew."""
        assert self.changes is not None, "changes are not tracked"
        changes, self.changes = self.changes, Changes()
        return changes
