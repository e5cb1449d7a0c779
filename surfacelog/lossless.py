"""JSON that comes back as it went in: checks, values and raw slices of a text.

Fast where msgspec can read the text; where it cannot (lone surrogate escapes, deep nesting on a deep stack) an
own reader without recursion takes over. Both accept exactly the same texts.
"""

import json
import math
import re
from typing import Any, NoReturn

import msgspec

from surfacelog.errors import ContractError

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
# msgspec refuses longer integers, and Python refuses to turn them into text.
DIGITS_MAX = 4300

_TOKEN = re.compile(
    rb"[ \t\r\n]*+(?:"
    rb'(?P<text>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    rb"|(?P<number>-?(?:0|[1-9][0-9]*+)(?P<float>(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+))"
    rb"|(?P<mark>[\[\]{},:])"
    rb"|(?P<word>true|false|null))"
)
_TEXT = re.compile(rb'"(?:[^"\\]++|\\.)*+"', re.DOTALL)
# Where the integer -0 may stand. A literal prefix makes this search twice as fast as a plain `in`.
ZERO = re.compile(rb"-0(?:[,\]} \t\r\n]|\Z)")
_BLANK = b" \t\r\n"
_BEFORE_NUMBER = frozenset((b"", b":", b",", b"[", b" ", b"\t", b"\r", b"\n"))
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_WORDS = {b"true": True, b"false": False, b"null": None}
_MISSING = object()


def _refuse(code: str, message: str) -> NoReturn:
    raise ContractError(code, message)


def float_of(text: str) -> float | int:
    """The number, an integer if it has an integer's value; raises ValueError with a code as its text."""
    value = float(text)
    if math.isinf(value):
        raise ValueError("number-range")
    if value == 0 and text[0] == "-":
        raise ValueError("number-negative-zero")
    return int(value) if value.is_integer() else value


_any = msgspec.json.Decoder(float_hook=float_of)


def read(raw: bytes, depth_max: int = DEPTH_MAX) -> Any:
    """The value of a lossless JSON text of at most `depth_max` nested containers, floats with an integer value as
    integers; raises ContractError."""
    try:
        value = _any.decode(raw)
    except (msgspec.MsgspecError, RecursionError, ValueError):
        return _walk(raw, depth_max)[0]
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
        return _walk(raw, DEPTH_MAX + 1)[0]


def members(raw: bytes, depth_max: int = DEPTH_MAX) -> dict[str, bytes] | None:
    """The members of an object as they are written, the last of double keys; None for any other value."""
    value, slices = _walk(raw, depth_max)
    if type(value) is not dict:
        return None
    return {key: raw[start:end] for key, start, end in slices}


def elements(raw: bytes, depth_max: int = DEPTH_MAX) -> list[bytes] | None:
    """The elements of an array as they are written; None for any other value."""
    value, slices = _walk(raw, depth_max)
    if type(value) is not list:
        return None
    return [raw[start:end] for _, start, end in slices]


def check_decoded(raw: bytes, depth_max: int) -> None:
    """Refuses what msgspec lets pass: the integer -0, and nesting up to Python's own limit."""
    if ZERO.search(raw) is not None and _may_hold_zero(raw):
        _walk(raw, depth_max)
    else:
        check_depth(raw, depth_max)


def check_depth(raw: bytes, depth_max: int) -> None:
    """Raises ContractError when the JSON text nests deeper."""
    if len(raw) > 2 * depth_max:
        # Removing brackets counts them several times faster than `count` does.
        opened = 2 * len(raw) - len(raw.replace(b"{", b"")) - len(raw.replace(b"[", b""))
        if opened > depth_max:
            _measure_depth(raw, depth_max)


def _may_hold_zero(raw: bytes) -> bool:
    """Whether a -0 stands where a number can; if it is in a string, only reading token by token can tell."""
    return any(raw[m.start() - 1 : m.start()] in _BEFORE_NUMBER for m in ZERO.finditer(raw))


def _measure_depth(raw: bytes, depth_max: int) -> None:
    depth = 0
    for bracket in _TEXT.sub(b"", raw).translate(None, _NOT_BRACKETS):
        if bracket in b"[{":
            depth += 1
            if depth > depth_max:
                _refuse("depth-exceeded", f"data may nest at most {DEPTH_MAX} levels deep")
        else:
            depth -= 1


def _number(token: bytes, is_float: bool) -> float | int:
    if is_float:
        try:
            return float_of(token.decode("ascii"))
        except ValueError as error:
            _refuse(str(error), f"{token[:40].decode()} cannot be kept as a number")
    if token == b"-0":
        _refuse("number-negative-zero", "-0 cannot be kept as a number; send 0")
    if len(token.lstrip(b"-")) > DIGITS_MAX:
        _refuse("number-range", f"an integer may have at most {DIGITS_MAX} digits")
    return int(token)


def _text(token: bytes) -> str:
    try:
        value: str = json.loads(token.decode())
    except UnicodeDecodeError:
        _refuse("json-invalid", "the text is not valid UTF-8")
    return value


class _Frame:
    """An open container: its value so far, the key that waits for its value, and where that value starts."""

    __slots__ = ("close", "items", "key", "value")

    def __init__(self, mark: bytes) -> None:
        self.value: Any = {} if mark == b"{" else []
        self.close = b"}" if mark == b"{" else b"]"
        self.key = ""
        self.items = 0

    def add(self, value: Any) -> None:
        self.items += 1
        if self.close == b"}":
            self.value[self.key] = value
        else:
            self.value.append(value)


def _walk(raw: bytes, depth_max: int) -> tuple[Any, list[tuple[str, int, int]]]:
    """The value, and (key, start, end) of each direct child of the outermost container; no recursion."""
    stack: list[_Frame] = []
    slices: list[tuple[str, int, int]] = []
    at, started = 0, 0
    value: Any = _MISSING
    while value is _MISSING or stack:
        at, value, opened = _next_value(raw, at, stack)
        if len(stack) == 1:
            started = opened
        if isinstance(value, _Frame):
            if len(stack) == depth_max:
                _refuse("depth-exceeded", f"data may nest at most {DEPTH_MAX} levels deep")
            stack.append(value)
            value = _MISSING
            continue
        mark = b""
        while stack and mark != b",":
            if value is not _MISSING:
                stack[-1].add(value)
                if len(stack) == 1:
                    slices.append((stack[0].key, started, at))
            mark, at = _mark(raw, at, b"," + stack[-1].close)
            if mark != b",":
                value = stack.pop().value
    if raw[at:].strip(_BLANK):
        _refuse("json-invalid", f"unexpected text behind the value (byte {at})")
    return value, slices


def _next_value(raw: bytes, at: int, stack: list[_Frame]) -> tuple[int, Any, int]:
    """(end, value, start) of what comes next: a scalar, a container just opened, or `_MISSING` before a close."""
    frame = stack[-1] if stack else None
    if frame is not None:
        if frame.items == 0 and _peek(raw, at) == frame.close:
            return at, _MISSING, at
        if frame.close == b"}":
            token = _TOKEN.match(raw, at)
            if token is None or token.lastgroup != "text":
                _refuse("json-invalid", f"a key is missing at byte {at}")
            frame.key = _text(token["text"])
            _, at = _mark(raw, token.end(), b":")
    token = _TOKEN.match(raw, at)
    if token is None:
        _refuse("json-invalid", f"not JSON at byte {at}")
    start = token.end() - len(token[0].lstrip(_BLANK))
    if token["mark"] is not None:
        if token["mark"] not in (b"{", b"["):
            _refuse("json-invalid", f"a value is missing at byte {at}")
        return token.end(), _Frame(token["mark"]), start
    if token["text"] is not None:
        return token.end(), _text(token["text"]), start
    if token["number"] is not None:
        return token.end(), _number(token["number"], bool(token["float"])), start
    return token.end(), _WORDS[token["word"]], start


def _peek(raw: bytes, at: int) -> bytes:
    token = _TOKEN.match(raw, at)
    return b"" if token is None else token[0].lstrip(_BLANK)


def _mark(raw: bytes, at: int, allowed: bytes) -> tuple[bytes, int]:
    token = _TOKEN.match(raw, at)
    if token is None or token["mark"] is None or token["mark"] not in allowed:
        _refuse("json-invalid", f"not JSON at byte {at}")
    return token["mark"], token.end()


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


_scalar = msgspec.json.Encoder()
_sorted = msgspec.json.Encoder(order="sorted")


def canonical(value: Any) -> bytes:
    """One byte string for all equal JSON values: keys sorted, integers exact, no blanks."""
    try:
        return _sorted.encode(value)
    except (OverflowError, UnicodeEncodeError, RecursionError, ValueError):
        return _canonical_slowly(value)


def _canonical_slowly(value: Any) -> bytes:
    """The same bytes as the fast way wherever that can write the value at all; no recursion."""
    parts: list[bytes] = []
    work: list[Any] = [value]
    while work:
        item = work.pop()
        if type(item) is bytes:
            parts.append(item)
        elif type(item) is dict:
            work.append(b"}")
            for place, key in reversed(list(enumerate(sorted(item)))):
                work += [item[key], (b"," if place else b"") + _canonical_scalar(key) + b":"]
            work.append(b"{")
        elif type(item) is list:
            work.append(b"]")
            for place in range(len(item) - 1, -1, -1):
                work += [item[place], b"," if place else b""]
            work.append(b"[")
        else:
            parts.append(_canonical_scalar(item))
    return b"".join(parts)


def _canonical_scalar(value: Any) -> bytes:
    try:
        return _scalar.encode(value)
    except (OverflowError, UnicodeEncodeError):
        return json.dumps(value).encode()
