"""A failure case as it is written: raw events and rows keep their bytes, so nothing is judged on a re-encoding."""

import json
from typing import Any

import msgspec

from gateway.cli.trial import Rules
from surfacelog import lossless
from surfacelog.errors import ProtocolError
from surfacelog.formats.headers import CONTRACTS

__all__ = ["Case", "read_case"]


class Case(msgspec.Struct, frozen=True):
    """`events`, `appends`: envelopes as JSON bytes. `texts`: JSON texts to append. `lines`: stored rows.
    `boundaries`: where to fork. `numbers`: JSON numbers that must come back as they are or be refused."""

    id: str
    op: str
    expect: dict[str, Any]
    rules: Rules
    events: tuple[bytes, ...] = ()
    appends: tuple[bytes, ...] = ()
    texts: tuple[bytes, ...] = ()
    lines: tuple[bytes, ...] = ()
    numbers: tuple[bytes, ...] = ()
    boundaries: tuple[int, ...] = ()


def read_case(text: bytes) -> Case:
    """The case in one file; raises ProtocolError bad-request naming what is wrong."""
    fields = _members(text)
    op = _value(fields, "op", str)
    if op is None:
        raise ProtocolError("bad-request", "the file has no op, so it is no case")
    expect = _value(fields, "expect", dict)
    if expect is None:
        raise ProtocolError("bad-request", "the case expects nothing")
    boundary = _value(fields, "boundary", (list, int), [])
    return Case(
        id=_value(fields, "id", str, ""),
        op=op,
        expect=expect,
        rules=_rules(fields),
        events=_elements(fields, "events"),
        appends=_elements(fields, "appends"),
        texts=_texts(fields, "rawAppends"),
        lines=_texts(fields, "lines"),
        numbers=_texts(fields, "rawNumbers"),
        boundaries=tuple(boundary) if isinstance(boundary, list) else (boundary,),
    )


def _rules(fields: dict[str, bytes]) -> Rules:
    """A case may choose its contract, checks and vocabulary, at the top or in a `header`."""
    header = _members(fields["header"]) if "header" in fields else {}
    chosen = {}
    for name in ("contract", "checks", "vocabulary"):
        raw = fields.get(name, header.get(name))
        if raw is not None:
            chosen[name] = json.loads(raw)
    version = fields.get("version", fields.get("format", header.get("version")))
    if version is not None and "contract" not in chosen:
        chosen["contract"] = CONTRACTS.get(json.loads(version), "v4")
    try:
        rules = msgspec.convert(chosen, Rules)
        rules.header()
    except msgspec.ValidationError as error:
        raise ProtocolError("bad-request", f"the case's rules cannot be read ({error})") from None
    return rules


def _members(text: bytes) -> dict[str, bytes]:
    try:
        return {name: bytes(raw) for name, raw in msgspec.json.decode(text, type=dict[str, msgspec.Raw]).items()}
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = lossless.members(text)
    if found is None:
        raise ProtocolError("bad-request", "a case is a JSON object")
    return found


def _value(fields: dict[str, bytes], name: str, kind: Any, otherwise: Any = None) -> Any:
    if name not in fields:
        return otherwise
    value = json.loads(fields[name])
    if not isinstance(value, kind) or isinstance(value, bool):
        raise ProtocolError("bad-request", f"the case's {name} has the wrong type")
    return value


def _elements(fields: dict[str, bytes], name: str) -> tuple[bytes, ...]:
    if name not in fields:
        return ()
    try:
        return tuple(bytes(raw) for raw in msgspec.json.decode(fields[name], type=list[msgspec.Raw]))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        found = lossless.elements(fields[name])
    if found is None:
        raise ProtocolError("bad-request", f"the case's {name} is no list")
    return tuple(found)


def _texts(fields: dict[str, bytes], name: str) -> tuple[bytes, ...]:
    found = _value(fields, name, list, [])
    if not all(isinstance(text, str) for text in found):
        raise ProtocolError("bad-request", f"the case's {name} holds something else than strings")
    return tuple(text.encode("utf-8", "surrogatepass") for text in found)
