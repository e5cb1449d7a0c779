"""One Kafka record of the ledger, and its headers.

A record is an open, commit, claim, release or delete of one session. Reading never raises for what a
stranger may have written: what cannot be read is `None`, and the fold turns it into the verdict `malformed`.
"""

from collections.abc import Sequence
from hashlib import sha256

import msgspec

__all__ = [
    "EMPTY_FENCE",
    "KINDS",
    "RECORD_VERSION",
    "KeyClaim",
    "Record",
    "chain_next",
    "chain_start",
    "fence_text",
]

RECORD_VERSION = 1
EMPTY_FENCE = "0:"
KINDS = frozenset({"open", "commit", "claim", "release", "delete"})
Headers = Sequence[tuple[str, bytes]]


class KeyClaim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An idempotency key in a record: hex digests of the key and of the client's request, and the head
    (`since`, a seq) that the client knew at its first attempt."""

    key: str
    request: str
    since: int


class Record(msgspec.Struct, frozen=True, gc=False):
    """`id`: UUIDv7 text, one per attempt. `prev`: the chain (32 bytes) the writer built on. `seq`: the first
    seq of a commit. `reply`: the producer that waits, or empty. `value`: for a commit its event lines."""

    kind: str
    id: str
    value: bytes
    prev: bytes = b""
    fence: str = EMPTY_FENCE
    seq: int = -1
    key: KeyClaim | None = None
    reply: str = ""
    v: int = RECORD_VERSION

    def headers(self) -> list[tuple[str, bytes]]:
        """The record's Kafka headers."""
        found = [("kind", self.kind.encode()), ("id", self.id.encode()), ("v", b"%d" % self.v)]
        if self.prev:
            found.append(("prev", self.prev))
        if self.fence != EMPTY_FENCE:
            found.append(("fence", self.fence.encode()))
        if self.seq >= 0:
            found.append(("seq", b"%d" % self.seq))
        if self.key is not None:
            found.append(("key", msgspec.json.encode(self.key)))
        if self.reply:
            found.append(("reply", self.reply.encode()))
        return found


def fence_text(epoch: int, owner: str = "", claim: str = "") -> str:
    """`epoch:owner:claim`, or `epoch:` when nobody holds the session."""
    return f"{epoch}:{owner}:{claim}" if owner else f"{epoch}:"


def read_record(headers: Headers, value: bytes | None) -> Record | None:
    """The record, or None when its headers cannot be read. An unknown `v` or `kind` is kept as it is."""
    try:
        found = dict(headers)
        key = found.get("key")
        return Record(
            kind=found["kind"].decode(),
            id=found["id"].decode(),
            value=value or b"",
            prev=found.get("prev", b""),
            fence=found.get("fence", b"0:").decode(),
            seq=int(found.get("seq", b"-1")),
            key=None if key is None else msgspec.json.decode(key, type=KeyClaim),
            reply=found.get("reply", b"").decode(),
            v=int(found["v"]),
        )
    except (KeyError, ValueError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError):
        return None


def _digest(*parts: bytes) -> bytes:
    whole = sha256()
    for part in parts:
        # Lengths keep the parts apart: moving a byte from one part to the next changes the digest.
        whole.update(len(part).to_bytes(8, "big"))
        whole.update(part)
    return whole.digest()


def chain_start(open_id: str, header: bytes) -> bytes:
    """The chain (32 bytes) of a session just opened."""
    return _digest(open_id.encode(), header)


def chain_next(chain: bytes, record: Record) -> bytes:
    """The chain after one more accepted record."""
    key = b"" if record.key is None else msgspec.json.encode(record.key)
    return _digest(chain, record.kind.encode(), record.id.encode(), record.fence.encode(), key, record.value)


def chain_skip(chain: bytes, offset: int) -> bytes:
    """The chain after the windows overflowed at `offset`; nothing that was in flight fits any more."""
    return _digest(chain, b"windows-overflow", b"%d" % offset)
