"""Rows of a stored log: pieces of bytes cut at 0x0A and at nothing else; and whether a row is JSON at all."""

from collections.abc import Iterable, Iterator

import msgspec

from surfacelog import lossless
from surfacelog.errors import ContractError, ProtocolError

__all__ = ["ROW_BYTES_MAX", "is_json", "members_of", "split_rows"]

ROW_BYTES_MAX = 1 << 26


def split_rows(pieces: Iterable[bytes]) -> Iterator[bytes]:
    """The rows in `pieces`, without their newline. A last row that lacks its newline is a row; nothing behind
    the last newline is none. Raises ProtocolError too-large for a row above `ROW_BYTES_MAX`."""
    held: list[bytes] = []
    held_bytes = 0
    number = 0
    for piece in pieces:
        rows = piece.split(b"\n")
        for row in rows[:-1]:
            if held:
                held.append(row)
                row = b"".join(held)
                held = []
                held_bytes = 0
            yield row
            number += 1
        if rows[-1]:
            held.append(rows[-1])
            held_bytes += len(rows[-1])
            if held_bytes > ROW_BYTES_MAX:
                raise ProtocolError("too-large", f"row {number} is longer than {ROW_BYTES_MAX} bytes", row=number)
    if held:
        yield b"".join(held)


def is_json(row: bytes) -> bool:
    """Whether `row` is one JSON text in UTF-8. A row that was cut off never is, since it is an object; so this
    tells a torn row from one that is whole but not allowed (1e400, too deep, a missing key)."""
    try:
        lossless.check(row)
    except ContractError as error:
        return error.code != "json-invalid"
    return True


def members_of(row: bytes) -> dict[str, bytes]:
    """The members of the object in `row` as they are written; empty for anything else."""
    try:
        return {name: bytes(value) for name, value in _members.decode(row).items()}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        pass
    try:
        return lossless.members(row) or {}
    except ContractError:
        return {}


_members = msgspec.json.Decoder(dict[str, msgspec.Raw])
