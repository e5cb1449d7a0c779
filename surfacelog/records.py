"""One Kafka record of the ledger, and its headers.

A record is an open, commit, claim, release or delete of one session. Reading never raises for what a
stranger may have written: what cannot be read is `None`, and the fold turns it into the verdict `malformed`.
"""

from collections.abc import Sequence
from functools import lru_cache
from hashlib import sha256
from typing import Annotated

import msgspec
from msgspec import Meta

__all__ = [
    "EMPTY_FENCE",
    "KINDS",
    "RECORD_VERSION",
    "KeyClaim",
    "Record",
    "chain_next",
    "chain_skip",
    "chain_start",
    "epoch_of",
    "fence_text",
    "read_record",
]

RECORD_VERSION = 1
EMPTY_FENCE = "0:"
KINDS = frozenset({"open", "commit", "claim", "release", "delete"})
# Ids are kept and sent back many times over, so none may be long; integers stay below what every reader holds.
ID_BYTES_MAX = 128
FENCE_BYTES_MAX = 1024
HEADER_BYTES_MAX = 1024
INTEGER_MAX = 2**53
Headers = Sequence[tuple[str, bytes]]
Digest = Annotated[str, Meta(max_length=ID_BYTES_MAX)]


class KeyClaim(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """An idempotency key in a record: hex digests of the key and of the client's request, and the head
    (`since`, a seq) that the client knew at its first attempt."""

    key: Digest
    request: Digest
    since: Annotated[int, Meta(ge=0, le=INTEGER_MAX)]


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


_KNOWN = {kind.encode(): kind for kind in KINDS}
_V1 = b"1"
_UNCLAIMED = EMPTY_FENCE.encode()
_key = msgspec.json.Decoder(KeyClaim)
_unread = (KeyError, ValueError, TypeError, AttributeError, RecursionError, msgspec.MsgspecError)


@lru_cache(maxsize=4096)
def fence_text(epoch: int, owner: str = "", claim: str = "") -> str:
    """`epoch:owner:claim`, or `epoch:` when nobody holds the session."""
    return f"{epoch}:{owner}:{claim}" if owner else f"{epoch}:"


def epoch_of(fence: str) -> int:
    """The epoch that a fence names; -1 when it names none."""
    epoch = fence.partition(":")[0]
    return int(epoch) if epoch.isdecimal() and epoch.isascii() and len(epoch) <= 16 else -1


def read_record(headers: Headers, value: bytes | None) -> Record | None:
    """The record, or None when its headers cannot be read or break a limit. An unknown `kind` is kept as it is.
    Of a later `v` nothing is known but that: its other headers may be missing here."""
    try:
        found = dict(headers)
        version = 1 if found["v"] == _V1 else _integer(found["v"])
    except _unread:
        return None
    try:
        kind, fence, seq, key = found["kind"], found.get("fence", _UNCLAIMED), found.get("seq"), found.get("key")
        return Record(
            _KNOWN[kind] if kind in _KNOWN else _text(kind, ID_BYTES_MAX),
            _text(found["id"], ID_BYTES_MAX),
            value or b"",
            _short(found.get("prev", b""), ID_BYTES_MAX),
            EMPTY_FENCE if fence == _UNCLAIMED else _text(fence, FENCE_BYTES_MAX),
            -1 if seq is None else _integer(seq),
            None if key is None else _key.decode(_short(key, HEADER_BYTES_MAX)),
            _text(found.get("reply", b""), HEADER_BYTES_MAX),
            version,
        )
    except _unread:
        return Record("", "", value or b"", v=version) if version > RECORD_VERSION else None


def _short(raw: bytes, size_bytes_max: int) -> bytes:
    if len(raw) > size_bytes_max:
        raise ValueError("a header is too long")
    return raw


def _text(raw: bytes, size_bytes_max: int) -> str:
    return _short(raw, size_bytes_max).decode()


def _integer(raw: bytes) -> int:
    # `int` alone would also take blanks, signs and underscores.
    number = int(raw) if raw.isdigit() and len(raw) <= 16 else -1
    if not 0 <= number <= INTEGER_MAX:
        raise ValueError("a header is no integer up to 2^53")
    return number


def _digest(*parts: bytes) -> bytes:
    whole: list[bytes] = []
    for part in parts:
        # Lengths keep the parts apart: moving a byte from one part to the next changes the digest.
        whole += (len(part).to_bytes(8, "big"), part)
    return sha256(b"".join(whole)).digest()


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
