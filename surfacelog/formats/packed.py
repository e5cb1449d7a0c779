"""Packed rows of the older format: one row that stands for a run of `assistant/chunk` deltas of one block.

The texts keep their bytes, so an escape that a delta cut in half survives.
"""

from collections.abc import Callable
from itertools import accumulate
from typing import Any, TypeVar, get_args

import msgspec
from msgspec import UNSET, Raw, UnsetType

from surfacelog import lossless
from surfacelog.errors import ContractError, ProtocolError
from surfacelog.events import Event

__all__ = ["PACKED_TYPES", "unpack"]

PACKED_MAX = 1_000_000
_Kind = TypeVar("_Kind", bound=msgspec.Struct)


class _Row(msgspec.Struct, forbid_unknown_fields=True):
    type: str
    seq0: int
    time0: int
    data: Raw


class _Texts(msgspec.Struct, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: list[int]
    texts: Raw


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: list[int]
    args: Raw
    id: Raw | UnsetType = UNSET
    name: Raw | UnsetType = UNSET


def unpack(row: bytes, size_bytes_max: int) -> list[Event]:
    """The events that a packed row stands for, with contiguous seqs from `seq0` on and times `time0` plus the
    gaps `dt` (ms) before each. Raises ProtocolError malformed, and too-large when their data would have more than
    `size_bytes_max` bytes."""
    try:
        packed = _struct(row, _Row)
        run, heads, members = PACKED_TYPES[packed.type](packed.data)
        texts = _elements(members)
    except (msgspec.MsgspecError, ContractError, KeyError) as error:
        raise ProtocolError("malformed", f"the packed row cannot be read ({error})") from None
    if not 0 < len(texts) <= PACKED_MAX or len(run.dt) != len(texts) - 1:
        raise ProtocolError(
            "malformed", f"the packed row has {len(texts)} members and {len(run.dt)} gaps between them"
        )
    if not all(text.startswith(b'"') for text in texts):
        raise ProtocolError("malformed", "a member of the packed row is not a string")
    start = b'{"turn":%d,"step":%d,"chunk":{%s' % (run.turn, run.step, heads)
    # Every member repeats it, so it is counted before anything is built.
    if len(texts) * (len(start) + 2) + sum(map(len, texts)) > size_bytes_max:
        raise ProtocolError(
            "too-large",
            f"the packed row stands for more than the {size_bytes_max} bytes that are left of the limit; raise it "
            "if the log is trusted",
        )
    times = accumulate(run.dt, initial=packed.time0)
    return [
        Event("assistant/chunk", packed.seq0 + place, time, Raw(start + text + b"}}"))
        for place, (time, text) in enumerate(zip(times, texts, strict=True))
    ]


_Expanded = tuple[_Texts | _Arguments, bytes, Raw]


def _text(data: Raw) -> _Expanded:
    run = _struct(data, _Texts)
    return run, b'"type":"text-delta","index":%d,"text":' % run.index, run.texts


def _reasoning(data: Raw) -> _Expanded:
    run = _struct(data, _Texts)
    return run, b'"type":"reasoning-delta","index":%d,"text":' % run.index, run.texts


def _tool_call(data: Raw) -> _Expanded:
    run = _struct(data, _Arguments)
    head = b'"type":"tool-call-delta","index":%d,' % run.index
    if run.id is not UNSET:
        head += b'"id":%s,' % bytes(run.id)
    if run.name is not UNSET:
        head += b'"name":%s,' % bytes(run.name)
    return run, head + b'"argumentsDelta":', run.args


PACKED_TYPES: dict[str, Callable[[Raw], _Expanded]] = {
    "text-chunks": _text,
    "reasoning-chunks": _reasoning,
    "tool-call-chunks": _tool_call,
}


def _struct(raw: bytes | Raw, kind: type[_Kind]) -> _Kind:
    """`raw` as a struct whose Raw fields keep their bytes. The second reader knows lone surrogate escapes."""
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        slices = lossless.members(bytes(raw)) or {}
    raw_names = {field.encode_name for field in msgspec.structs.fields(kind) if Raw in _kinds(field.type)}
    return msgspec.convert(
        {name: Raw(text) if name in raw_names else lossless.read(text) for name, text in slices.items()}, kind
    )


def _kinds(annotation: Any) -> tuple[Any, ...]:
    return get_args(annotation) or (annotation,)


def _elements(raw: Raw) -> list[bytes]:
    try:
        return [bytes(found) for found in msgspec.json.decode(raw, type=list[Raw])]
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return lossless.elements(bytes(raw)) or []
