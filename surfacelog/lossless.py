"""JSON that comes back as it went in: checks, values and raw slices of a text.

Every text is read by C code: by msgspec, by Python's own reader where msgspec cannot (lone surrogate escapes), and
only on a stack too deep for both token by token. All accept exactly the same texts, with the same codes.
"""

import json
import re
from collections.abc import Callable
from itertools import accumulate
from typing import Any, NoReturn

import msgspec

from surfacelog.errors import ContractError
from surfacelog.walk import DIGITS_MAX, float_of, integer_of, walk

__all__ = [
    "DEPTH_MAX",
    "ZERO",
    "canonical",
    "check",
    "check_decoded",
    "check_depth",
    "elements",
    "float_of",
    "members",
    "read",
    "read_again",
    "storable",
]

DEPTH_MAX = 512

_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Where the integer -0 may stand. A literal prefix makes this search twice as fast as a plain `in`.
ZERO = re.compile(rb"-0(?:[,\]} \t\r\n]|\Z)")
_ZERO_NUMBER = re.compile(rb"(?<![eE])-0(?:[,\]} \t\r\n]|\Z)")
_BLANKS = re.compile(r"[ \t\r\n]*+")
_COLON = re.compile(r"[ \t\r\n]*+:[ \t\r\n]*+")
_COMMA = re.compile(r"[ \t\r\n]*+,[ \t\r\n]*+")
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
# As signed bytes: +1 for what opens, -1 for what closes.
_STEPS = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_DIGITS = bytes.maketrans(b"123456789", b"000000000")
_MANY_DIGITS = b"0" * (DIGITS_MAX + 1)


def _refuse(code: str, message: str) -> NoReturn:
    raise ContractError(code, message)


def _float(text: str) -> float | int:
    try:
        return float_of(text)
    except ValueError as error:
        _refuse(str(error), f"{text[:40]!r} cannot be kept as a number")


def _constant(name: str) -> NoReturn:
    _refuse("json-invalid", f"{name} is not JSON")


_any = msgspec.json.Decoder(float_hook=float_of)
_second = json.JSONDecoder(parse_float=_float, parse_constant=_constant)
# Looks at every integer, so it is taken only where one of them is suspected.
_exact = json.JSONDecoder(parse_float=_float, parse_int=integer_of, parse_constant=_constant)


def read(raw: bytes, depth_max: int = DEPTH_MAX) -> Any:
    """The value of a lossless JSON text of at most `depth_max` nested containers, floats with an integer value as
    integers; raises ContractError."""
    try:
        value = _any.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _read_carefully(raw, depth_max)
    check_decoded(raw, depth_max)
    return value


def check(raw: bytes, depth_max: int = DEPTH_MAX) -> None:
    """Raises ContractError unless `raw` is one lossless JSON text of at most `depth_max` nested containers."""
    read(raw, depth_max)


def read_again(raw: bytes) -> Any:
    """The value of a text that `read` accepted before."""
    try:
        return _any.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _read_carefully(raw, DEPTH_MAX + 1)


def members(raw: bytes, depth_max: int = DEPTH_MAX) -> dict[str, bytes] | None:
    """The members of an object as they are written, the last of double keys; None for any other value."""
    text, reader = _prepare(raw, depth_max)
    try:
        return _members(text, reader)
    except RecursionError:
        value, slices = walk(raw)
        return {key: raw[start:end] for key, start, end in slices} if type(value) is dict else None


def elements(raw: bytes, depth_max: int = DEPTH_MAX) -> list[bytes] | None:
    """The elements of an array as they are written; None for any other value."""
    text, reader = _prepare(raw, depth_max)
    try:
        return _elements(text, reader)
    except RecursionError:
        value, slices = walk(raw)
        return [raw[start:end] for _, start, end in slices] if type(value) is list else None


def check_decoded(raw: bytes, depth_max: int) -> None:
    """Refuses what msgspec lets pass: the integer -0, and nesting up to Python's own limit."""
    check_depth(raw, depth_max)
    if ZERO.search(raw) is not None and _ZERO_NUMBER.search(_TEXT.sub(b'""', raw)) is not None:
        integer_of("-0")


def check_depth(raw: bytes, depth_max: int) -> None:
    """Raises ContractError when the JSON text nests deeper."""
    if len(raw) > 2 * depth_max:
        # Removing brackets counts them several times faster than `count` does.
        opened = 2 * len(raw) - len(raw.replace(b"{", b"")) - len(raw.replace(b"[", b""))
        if opened > depth_max:
            steps = memoryview(_TEXT.sub(b"", raw).translate(_STEPS, _NOT_BRACKETS)).cast("b")
            if max(accumulate(steps), default=0) > depth_max:
                _refuse("depth-exceeded", f"data may nest at most {DEPTH_MAX} levels deep")


def _prepare(raw: bytes, depth_max: int) -> tuple[str, json.JSONDecoder]:
    """The text, not too deep, and who can read it."""
    check_depth(raw, depth_max)
    try:
        text = raw.decode()
    except UnicodeDecodeError:
        _refuse("json-invalid", "the text is not valid UTF-8")
    suspect = (b"-0" in raw and b"-0" in _TEXT.sub(b'""', raw)) or (
        len(raw) > DIGITS_MAX and _MANY_DIGITS in raw.translate(_DIGITS)
    )
    return text, _exact if suspect else _second


def _read_carefully(raw: bytes, depth_max: int) -> Any:
    text, reader = _prepare(raw, depth_max)
    try:
        return reader.decode(text)
    except RecursionError:
        return walk(raw)[0]
    except json.JSONDecodeError as error:
        _invalid(error)


def _invalid(error: json.JSONDecodeError) -> NoReturn:
    _refuse("json-invalid", f"not JSON at character {error.pos}: {error.msg}")


def _skip(text: str, at: int) -> int:
    blank = _BLANKS.match(text, at)
    return at if blank is None else blank.end()


def _close(text: str, at: int, mark: str) -> None:
    """Nothing but the end of the outermost container is left."""
    at = _skip(text, at)
    if text[at : at + 1] != mark or _skip(text, at + 1) != len(text):
        raise json.JSONDecodeError("the value should end here", text, at)


def _members(text: str, reader: json.JSONDecoder) -> dict[str, bytes] | None:
    found: dict[str, bytes] = {}
    at, read = _skip(text, 0), reader.raw_decode
    try:
        if text[at : at + 1] != "{":
            reader.decode(text)
            return None
        at = _skip(text, at + 1)
        while text[at : at + 1] != "}" or found:
            if text[at : at + 1] != '"':
                raise json.JSONDecodeError("a key is missing", text, at)
            key, at = read(text, at)
            colon = _COLON.match(text, at)
            if colon is None:
                raise json.JSONDecodeError("a colon is missing", text, at)
            start = colon.end()
            _, at = read(text, start)
            found[key] = text[start:at].encode()
            comma = _COMMA.match(text, at)
            if comma is None:
                break
            at = comma.end()
        _close(text, at, "}")
    except json.JSONDecodeError as error:
        _invalid(error)
    return found


def _elements(text: str, reader: json.JSONDecoder) -> list[bytes] | None:
    found: list[bytes] = []
    at, read = _skip(text, 0), reader.raw_decode
    try:
        if text[at : at + 1] != "[":
            reader.decode(text)
            return None
        at = _skip(text, at + 1)
        while text[at : at + 1] != "]" or found:
            start = at
            _, at = read(text, start)
            found.append(text[start:at].encode())
            comma = _COMMA.match(text, at)
            if comma is None:
                break
            at = comma.end()
        _close(text, at, "]")
    except json.JSONDecodeError as error:
        _invalid(error)
    return found


def storable(text: str) -> str:
    """The text itself where any encoder takes it, else a stand-in for it that no other text has: with lone
    surrogates (and, to tell them apart, a NUL at the start) it is written as escapes behind a NUL."""
    if text[:1] != "\0":
        if text.isascii():
            return text
        try:
            text.encode()
        except UnicodeEncodeError:
            pass
        else:
            return text
    return "\0" + json.dumps(text)


_sorted = msgspec.json.Encoder(order="sorted")
_escaped = json.JSONEncoder(sort_keys=True, separators=(",", ":"), check_circular=False)


def canonical(value: Any) -> bytes:
    """One byte string for all equal JSON values: keys sorted, integers exact, no blanks."""
    try:
        return _sorted.encode(value)
    except (OverflowError, UnicodeEncodeError):
        # Lone surrogates and long integers: the whole value in escapes, which is just as unambiguous.
        pass
    except (RecursionError, ValueError):
        return _canonical_slowly(value)
    try:
        return _escaped.encode(value).encode()
    except RecursionError:
        return _canonical_slowly(value)


def _canonical_slowly(value: Any) -> bytes:
    """The same bytes without recursion, for a stack that is too deep for C."""
    try:
        return _assemble(value, _sorted.encode)
    except (OverflowError, UnicodeEncodeError):
        return _assemble(value, lambda scalar: _escaped.encode(scalar).encode())


def _assemble(value: Any, scalar: Callable[[Any], bytes]) -> bytes:
    parts: list[bytes] = []
    work: list[Any] = [value]
    while work:
        item = work.pop()
        if type(item) is bytes:
            parts.append(item)
        elif type(item) is dict:
            work.append(b"}")
            for place, key in reversed(list(enumerate(sorted(item)))):
                work += [item[key], (b"," if place else b"") + scalar(key) + b":"]
            work.append(b"{")
        elif type(item) is list:
            work.append(b"]")
            for place in range(len(item) - 1, -1, -1):
                work += [item[place], b"," if place else b""]
            work.append(b"[")
        else:
            parts.append(scalar(item))
    return b"".join(parts)
