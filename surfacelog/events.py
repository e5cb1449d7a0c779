"""Event envelopes: reading, checking and writing one line, without touching the bytes of `data`.

Refuses what is not lossless JSON; knows nothing of surfaces or sessions.
"""

import json
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from surfacelog import lossless
from surfacelog.errors import ContractError
from surfacelog.lossless import DEPTH_MAX

__all__ = [
    "SAFE_INTEGER",
    "Draft",
    "Event",
    "decode_event",
    "encode_line",
    "event_decoder",
    "read_data",
    "read_draft",
    "read_event",
    "read_lines",
]

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


event_decoder = msgspec.json.Decoder(Event)
_draft = msgspec.json.Decoder(Draft)
_text = msgspec.json.Encoder()
# Data adds one level to the envelope's own.
_LINE_DEPTH_MAX = DEPTH_MAX + 1


def read_event(line: bytes) -> Event:
    """The envelope on one line; raises ContractError."""
    lossless.check(line, _LINE_DEPTH_MAX)
    event = decode_event(line)
    if not 0 <= event.seq <= SAFE_INTEGER or not -SAFE_INTEGER <= event.time <= SAFE_INTEGER:
        raise ContractError("envelope-invalid", "seq and time must be integers below 2^53; seq not negative")
    if event.ignorable is False:
        raise ContractError("envelope-invalid", "ignorable is true or absent")
    return event


def decode_event(line: bytes) -> Event:
    """The envelope on a line that `read_event` accepted before, without looking into `data` again."""
    try:
        return event_decoder.decode(line)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _careful(line, Event)


def read_draft(text: bytes) -> Draft:
    """The envelope that a client offers; raises ContractError."""
    lossless.check(text, _LINE_DEPTH_MAX)
    try:
        draft = _draft.decode(text)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        draft = _careful(text, Draft)
    if draft.ignorable is False:
        raise ContractError("envelope-invalid", "ignorable is true or absent")
    return draft


Envelope = TypeVar("Envelope", Event, Draft)


def _careful(text: bytes, kind: type[Envelope]) -> Envelope:
    """The envelope of a text that msgspec does not read as a whole."""
    slices = lossless.members(text, _LINE_DEPTH_MAX)
    if slices is None:
        raise ContractError("envelope-invalid", "an event is a JSON object")
    fields: dict[str, Any] = {}
    for field in msgspec.structs.fields(kind):
        raw = slices.pop(field.encode_name, None)
        if raw is None:
            if field.required:
                raise ContractError("envelope-invalid", f"the event has no {field.encode_name}")
            continue
        fields[field.name] = Raw(raw) if field.name in _RAW_FIELDS else _scalar(field, raw)
    if slices:
        raise ContractError("envelope-invalid", f"the event has an unknown field {next(iter(slices))!a}")
    return kind(**fields)


_RAW_FIELDS = frozenset({"data", "surface_op", "source_event_seqs"})
_KINDS = {"type": str, "seq": int, "time": int, "ignorable": bool}


def _scalar(field: msgspec.structs.FieldInfo, raw: bytes) -> Any:
    value = lossless.read(raw)
    # 1.0 reads as 1, but a seq or time is written as an integer.
    if type(value) is not _KINDS[field.name] or (type(value) is int and not raw.lstrip(b"-").isdigit()):
        raise ContractError("envelope-invalid", f"the event's {field.encode_name} has the wrong type")
    return value


def read_lines(value: bytes) -> list[bytes]:
    """The lines of a commit's value. Only 0x0A ends a line; the last one may lack it."""
    lines = value.split(b"\n")
    if not lines[-1]:
        lines.pop()
    return lines


def read_data(raw: bytes | Raw) -> Any:
    """`data` decoded, floats with an integer value as integers; raises ContractError unless lossless JSON."""
    return lossless.read(bytes(raw))


def encode_line(draft: Draft, seq: int, time: int) -> bytes:
    """The event's line (no newline at its end). `data` is kept byte for byte, but for newlines between
    tokens, which become spaces, so that a line is a line. Raises ContractError."""
    parts = [b'{"type":', _encode_text(draft.type), b',"seq":%d,"time":%d,"data":' % (seq, time)]
    parts.append(_one_line(draft.data))
    if draft.ignorable is not UNSET:
        parts.append(b',"ignorable":true' if draft.ignorable else b',"ignorable":false')
    if draft.surface_op is not UNSET:
        parts += [b',"surfaceOp":', _one_line(draft.surface_op)]
    if draft.source_event_seqs is not UNSET:
        parts += [b',"sourceEventSeqs":', _one_line(draft.source_event_seqs)]
    parts.append(b"}")
    return b"".join(parts)


def _encode_text(text: str) -> bytes:
    try:
        return _text.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def _one_line(raw: Raw) -> bytes:
    text = bytes(raw)
    lossless.check(text)
    # A newline cannot stand inside a JSON string, so these are all between tokens.
    return text.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in text or b"\r" in text else text
