"""Event envelopes: reading, checking and writing one line, without touching the bytes of `data`.

Refuses what is not lossless JSON; knows nothing of surfaces or sessions.
"""

from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

__all__ = ["Draft", "Event", "encode_line", "read_data", "read_event", "read_lines"]

DEPTH_MAX = 512
SAFE_INTEGER = 2**53 - 1


class Event(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """One envelope. `data`, `surface_op` and `source_event_seqs` are the raw JSON bytes that came in."""

    type: str
    seq: int
    time: int
    data: Raw
    ignorable: bool | UnsetType = UNSET
    surface_op: Raw | UnsetType = UNSET
    source_event_seqs: Raw | UnsetType = UNSET


class Draft(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """What a client offers: an envelope that the ledger has yet to number. `time` (ms) is optional."""

    type: str
    data: Raw
    time: int | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET
    surface_op: Raw | UnsetType = UNSET
    source_event_seqs: Raw | UnsetType = UNSET


def read_event(line: bytes) -> Event:
    """The envelope on one line; raises ContractError."""
    raise NotImplementedError


def read_lines(value: bytes) -> list[bytes]:
    """The lines of a commit's value. Only 0x0A ends a line; the last one may lack it."""
    raise NotImplementedError


def read_data(raw: bytes | Raw) -> Any:
    """`data` decoded, floats with an integer value as integers; raises ContractError unless lossless JSON."""
    raise NotImplementedError


def encode_line(draft: Draft, seq: int, time: int) -> bytes:
    """The event's line (no newline at its end). `data` is kept byte for byte, but for newlines between
    tokens, which become spaces, so that a line is a line. Raises ContractError."""
    raise NotImplementedError
