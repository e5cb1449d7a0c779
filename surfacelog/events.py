"""Event envelopes: reading, checking and writing one line, without touching the bytes of `data`.

Refuses what is not lossless JSON; knows nothing of surfaces or sessions.
"""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from surfacelog import lossless
from surfacelog.contract import LOG_TYPES, SURFACE_TYPES
from surfacelog.errors import ContractError
from surfacelog.lossless import DEPTH_MAX

__all__ = [
    "SAFE_INTEGER",
    "Checked",
    "Draft",
    "Event",
    "check_line",
    "check_lines",
    "decode_event",
    "encode_line",
    "event_decoder",
    "read_data",
    "read_draft",
    "read_event",
    "read_lines",
    "seal",
    "values_of",
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


class Checked(msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True):
    """An envelope read as values, all of it checked. `data` is bytes where they are known well: long and equal to
    data that was checked before."""

    type: str
    seq: Annotated[int, Meta(ge=0, le=SAFE_INTEGER)]
    time: Annotated[int, Meta(ge=-SAFE_INTEGER, le=SAFE_INTEGER)]
    data: Any
    ignorable: bool | UnsetType = UNSET
    surface_op: Any = UNSET
    source_event_seqs: Any = UNSET


event_decoder = msgspec.json.Decoder(Event)
_checked = msgspec.json.Decoder(Checked, float_hook=lossless.float_of)
_draft = msgspec.json.Decoder(Draft)
_text = msgspec.json.Encoder()
# Data adds one level to the envelope's own.
_LINE_DEPTH_MAX = DEPTH_MAX + 1
_Unread = (msgspec.MsgspecError, ValueError, RecursionError)
# A shorter line cannot nest too deep: every level takes two bytes.
_FLAT_BYTES = 2 * DEPTH_MAX
_LONG_BYTES = 4096
_LONG_BYTES_MAX = 128 * 1024
_LONG_COUNT = 16
_PLAIN_NAMES = LOG_TYPES | SURFACE_TYPES
_BARE = re.compile(rb'\{"type":"([!#-\[\]-~]+)","seq":(0|[1-9][0-9]{0,14}),"time":(0|[1-9][0-9]{0,14}),"data":')
# A client sends the same 20 KB of tools with every request: what was checked is recognised, not checked again.
# Shared by all sessions of the process, which is sound: it is known by all of its bytes, and whether they are
# lossless JSON depends on nothing else. At most 16 texts of 128 KB.
_long: list[bytes] = []


def check_line(line: bytes) -> Checked:
    """The envelope on one line as values; raises ContractError unless it is one and lossless JSON."""
    return next(check_lines((line,)))


def check_lines(lines: Iterable[bytes]) -> Iterator[Checked]:
    """As `check_line`, line by line."""
    decode, search = _checked.decode, lossless.ZERO.search
    for line in lines:
        if len(line) > _FLAT_BYTES:
            yield _check_long(line)
            continue
        try:
            event = decode(line)
        except _Unread:
            yield _check_slowly(line)
            continue
        if search(line) is not None:
            lossless.check_decoded(line, _LINE_DEPTH_MAX)
        if event.ignorable is False:
            raise _not_ignorable()
        yield event


def _not_ignorable() -> ContractError:
    return ContractError("envelope-invalid", "ignorable is true or absent")


def _check_long(line: bytes) -> Checked:
    if len(line) > _LONG_BYTES:
        known = _recognise(line)
        if known is not None:
            return known
    try:
        event = _checked.decode(line)
    except _Unread:
        return _check_slowly(line)
    lossless.check_decoded(line, _LINE_DEPTH_MAX)
    if event.ignorable is False:
        raise _not_ignorable()
    if len(line) > _LONG_BYTES:
        _remember(line)
    return event


def _recognise(line: bytes) -> Checked | None:
    """The envelope of a line that is nothing but type, seq, time and well-known data."""
    bare = _BARE.match(line)
    if bare is None:
        return None
    start = bare.end()
    size = len(line) - start - 1
    for data in _long:
        if len(data) == size and line.startswith(data, start) and line.endswith(b"}"):
            return Checked(bare[1].decode(), int(bare[2]), int(bare[3]), data)
    return None


def _remember(line: bytes) -> None:
    bare = _BARE.match(line)
    if bare is None or not line.endswith(b"}"):
        return
    data = line[bare.end() : -1]
    if bytes(decode_event(line).data) == data:
        _keep_long(data)


def _keep_long(data: bytes) -> None:
    if len(data) > _LONG_BYTES_MAX:
        return
    if len(_long) >= _LONG_COUNT:
        del _long[0]
    _long.append(data)


def _check_slowly(line: bytes) -> Checked:
    event = _careful(line, Event)
    op, sources = event.surface_op, event.source_event_seqs
    if not 0 <= event.seq <= SAFE_INTEGER or not -SAFE_INTEGER <= event.time <= SAFE_INTEGER:
        raise ContractError("envelope-invalid", "seq and time are integers below 2^53, seq not negative")
    if event.ignorable is False:
        raise _not_ignorable()
    return Checked(
        event.type,
        event.seq,
        event.time,
        lossless.read(bytes(event.data)),
        event.ignorable,
        op if op is UNSET else lossless.read(bytes(op)),
        sources if sources is UNSET else lossless.read(bytes(sources)),
    )


def read_event(line: bytes) -> Event:
    """The envelope on one line; raises ContractError unless it is one and lossless JSON."""
    check_line(line)
    return decode_event(line)


def decode_event(line: bytes) -> Event:
    """The envelope on a line that `read_event` accepted before, without looking into `data` again."""
    try:
        return event_decoder.decode(line)
    except _Unread:
        return _careful(line, Event)


def values_of(event: Event, *, data: bool = True) -> Checked:
    """The envelope as values, of an event that was read before; without `data` the data stays bytes."""
    op, sources = event.surface_op, event.source_event_seqs
    raw = bytes(event.data)
    return Checked(
        event.type,
        event.seq,
        event.time,
        lossless.read_again(raw) if data else raw,
        event.ignorable,
        op if op is UNSET else lossless.read_again(bytes(op)),
        sources if sources is UNSET else lossless.read_again(bytes(sources)),
    )


def read_draft(text: bytes) -> Draft:
    """The envelope that a client offers; raises ContractError."""
    try:
        draft = _draft.decode(text)
    except _Unread:
        draft = _careful(text, Draft)
    else:
        lossless.read(text, _LINE_DEPTH_MAX)
    if draft.ignorable is False:
        raise _not_ignorable()
    return draft


Envelope = TypeVar("Envelope", Event, Draft)


def _careful(text: bytes, kind: type[Envelope]) -> Envelope:
    """The envelope of a text that msgspec does not read as a whole."""
    slices = lossless.members(text, _LINE_DEPTH_MAX)
    if slices is None:
        raise ContractError("envelope-invalid", "an event is a JSON object")
    fields: dict[str, Any] = {}
    for field in _FIELDS[kind]:
        raw = slices.pop(field.encode_name, None)
        if raw is None:
            if field.required:
                raise ContractError("envelope-invalid", f"the event has no {field.encode_name}")
            continue
        fields[field.name] = Raw(raw) if field.name in _RAW_FIELDS else _scalar(field, raw)
    if slices:
        raise ContractError("envelope-invalid", f"the event has an unknown field {next(iter(slices))!a}")
    return kind(**fields)


_FIELDS: dict[type, tuple[msgspec.structs.FieldInfo, ...]] = {
    kind: msgspec.structs.fields(kind) for kind in (Event, Draft)
}
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
    return seal(draft, seq, time)[1]


def seal(draft: Draft, seq: int, time: int) -> tuple[Checked, bytes]:
    """The event that the draft becomes, as values, and its line; raises ContractError unless all of it is lossless
    JSON."""
    kind, op, sources = draft.type, draft.surface_op, draft.source_event_seqs
    if draft.ignorable is False or not -SAFE_INTEGER <= time <= SAFE_INTEGER:
        raise ContractError("envelope-invalid", "ignorable is true or absent, time an integer below 2^53")
    data = bytes(draft.data)
    value = lossless.read(data) if len(data) <= _LONG_BYTES else _read_long(data)
    op_value: Any = UNSET
    sources_value: Any = UNSET
    tail = b"" if draft.ignorable is UNSET else b',"ignorable":true'
    if op is not UNSET:
        text = bytes(op)
        op_value = "append" if text == b'"append"' else lossless.read(text)
        tail = b'%b,"surfaceOp":%b' % (tail, _one_line(text))
    if sources is not UNSET:
        text = bytes(sources)
        sources_value = lossless.read(text)
        tail = b'%b,"sourceEventSeqs":%b' % (tail, _one_line(text))
    name = b'"%b"' % kind.encode() if kind in _PLAIN_NAMES else _encode_text(kind)
    line = b'{"type":%b,"seq":%d,"time":%d,"data":%b%b}' % (name, seq, time, _one_line(data), tail)
    return Checked(kind, seq, time, value, draft.ignorable, op_value, sources_value), line


def _read_long(data: bytes) -> Any:
    # Comparing is far cheaper than hashing: data of another kind differs early.
    if any(len(known) == len(data) and known == data for known in _long):
        return data
    value = lossless.read(data)
    _keep_long(data)
    return value


def _encode_text(text: str) -> bytes:
    try:
        return _text.encode(text)
    except UnicodeEncodeError:
        return json.dumps(text).encode()


def _one_line(text: bytes) -> bytes:
    # A newline cannot stand inside a JSON string, so these are all between tokens.
    return text.replace(b"\n", b" ").replace(b"\r", b" ") if b"\n" in text or b"\r" in text else text
