"""How far a partition's projection has come, and what its directory knows of a session.

The projector writes them; producers and gateways read them.
"""

from collections.abc import Mapping

import msgspec

__all__ = ["Checkpoint", "DirEntry", "read_checkpoint", "read_entry"]


class Checkpoint(msgspec.Struct, frozen=True, gc=False):
    """`next`: the offset to fold next. `target`: the log end when a refold began; before it the partition is
    rebuilding. `epoch`: names this filling of the cache. `last`, `commit`: offset and id of the newest record
    folded (-1 and empty before the first). `advanced_ms`: when, by the worker's clock. `rate`: records a second
    that it folded lately. `sessions`: entries in the directory. `halted`: a code, when the partition stands still.
    `opens`: assignments without progress. `naming`: the offset about to be folded by a worker that feared a
    crash, else -1."""

    next: int = 0
    target: int = 0
    epoch: str = ""
    topic: str = ""
    last: int = -1
    commit: str = ""
    advanced_ms: int = 0
    rate: int = 0
    sessions: int = 0
    halted: str = ""
    opens: int = 0
    naming: int = -1

    @property
    def rebuilding(self) -> bool:
        """Whether the cache is still being filled from the log."""
        return self.next < self.target

    def fields(self) -> list[bytes]:
        """Names and values in turn, as HSET takes them."""
        found: list[bytes] = []
        for name, value in zip(_NAMES, msgspec.structs.astuple(self), strict=True):
            found += (name, value.encode() if isinstance(value, str) else b"%d" % value)
        return found


_NAMES = tuple(field.encode() for field in Checkpoint.__struct_fields__)


class DirEntry(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """`first`: offset of the session's open. `status`: open, deleted or faulted. `last`: offset of its newest
    folded record. `code`, `at`: for a faulted session, why and at which offset it was parked."""

    first: int
    status: str
    last: int
    code: str = ""
    at: int = -1

    def encode(self) -> bytes:
        """The entry as the directory holds it."""
        return msgspec.json.encode(self)


_entry = msgspec.json.Decoder(DirEntry)


def read_checkpoint(fields: Mapping[bytes, bytes]) -> Checkpoint | None:
    """The checkpoint in a `cp` hash; None when there is none, or none that can be read."""
    try:
        return (
            msgspec.convert(
                {name.decode(): value.decode() for name, value in fields.items()}, Checkpoint, strict=False
            )
            if fields
            else None
        )
    except (msgspec.ValidationError, ValueError):
        return None


def read_entry(raw: bytes | None) -> DirEntry | None:
    """A directory entry; None when there is none, or none that can be read."""
    try:
        return None if raw is None else _entry.decode(raw)
    except msgspec.MsgspecError:
        return None
