"""Packed rows of the older format: one row that stands for a run of `assistant/chunk` deltas of one block.

The texts keep their bytes, so an escape that a delta cut in half survives.
"""

from collections.abc import Callable
from itertools import accumulate

import msgspec
from msgspec import UNSET, Raw, UnsetType

from surfacelog.errors import ProtocolError
from surfacelog.events import Event

__all__ = ["PACKED_TYPES", "unpack"]

PACKED_MAX = 1_000_000


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
    texts: list[Raw]


class _Arguments(msgspec.Struct, forbid_unknown_fields=True):
    turn: int
    step: int
    index: int
    dt: list[int]
    args: list[Raw]
    id: Raw | UnsetType = UNSET
    name: Raw | UnsetType = UNSET


_row = msgspec.json.Decoder(_Row)
_texts = msgspec.json.Decoder(_Texts)
_arguments = msgspec.json.Decoder(_Arguments)


def unpack(row: bytes) -> list[Event]:
    """The events that a packed row stands for, with contiguous seqs from `seq0` on and times `time0` plus the
    gaps `dt` (ms) before each. Raises ProtocolError malformed."""
    try:
        packed = _row.decode(row)
        expand = PACKED_TYPES[packed.type]
        run, heads, texts = expand(packed.data)
    except (msgspec.MsgspecError, KeyError, ValueError, RecursionError) as error:
        raise ProtocolError("malformed", f"the packed row cannot be read ({error})") from None
    if not 0 < len(texts) <= PACKED_MAX or len(run.dt) != len(texts) - 1:
        raise ProtocolError(
            "malformed", f"the packed row has {len(texts)} members and {len(run.dt)} gaps between them"
        )
    if not all(bytes(text).startswith(b'"') for text in texts):
        raise ProtocolError("malformed", "a member of the packed row is not a string")
    times = accumulate(run.dt, initial=packed.time0)
    return [
        Event(
            "assistant/chunk",
            packed.seq0 + place,
            time,
            Raw(b'{"turn":%d,"step":%d,"chunk":{%s%s}}' % (run.turn, run.step, heads, bytes(text))),
        )
        for place, (time, text) in enumerate(zip(times, texts, strict=True))
    ]


_Expanded = tuple[_Texts | _Arguments, bytes, list[Raw]]


def _text(data: Raw) -> _Expanded:
    run = _texts.decode(data)
    return run, b'"type":"text-delta","index":%d,"text":' % run.index, run.texts


def _reasoning(data: Raw) -> _Expanded:
    run = _texts.decode(data)
    return run, b'"type":"reasoning-delta","index":%d,"text":' % run.index, run.texts


def _tool_call(data: Raw) -> _Expanded:
    run = _arguments.decode(data)
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
