"""A JSON reader that never recurses, for stacks on which the C readers have no room left.

Accepts and refuses just what they do, token by token in Python: some 10 µs a token, which no sender can choose.
"""

import json
import math
import re
from typing import Any, NoReturn

from surfacelog.errors import ContractError

__all__ = ["DIGITS_MAX", "float_of", "integer_of", "walk"]

# msgspec refuses longer integers, and Python refuses to turn them into text.
DIGITS_MAX = 4300

_TOKEN = re.compile(
    rb"[ \t\r\n]*+(?:"
    rb'(?P<text>"(?:[^"\\\x00-\x1f]++|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*+")'
    rb"|(?P<number>-?(?:0|[1-9][0-9]*+)(?P<float>(?:\.[0-9]++)?+(?:[eE][+-]?[0-9]++)?+))"
    rb"|(?P<mark>[\[\]{},:])"
    rb"|(?P<word>true|false|null))"
)
_BLANK = b" \t\r\n"
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


def integer_of(text: str) -> int:
    """The integer; raises ContractError for -0 and for what has too many digits."""
    if text == "-0":
        _refuse("number-negative-zero", "-0 cannot be kept as a number; send 0")
    if len(text.lstrip("-")) > DIGITS_MAX:
        _refuse("number-range", f"an integer may have at most {DIGITS_MAX} digits")
    return int(text)


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


def walk(raw: bytes) -> tuple[Any, list[tuple[str, int, int]]]:
    """The value, and (key, start, end) of each direct child of the outermost container. Expects valid UTF-8; how
    deep it may nest is checked before."""
    stack: list[_Frame] = []
    slices: list[tuple[str, int, int]] = []
    at, started = 0, 0
    value: Any = _MISSING
    while value is _MISSING or stack:
        at, value, opened = _next_value(raw, at, stack)
        if len(stack) == 1:
            started = opened
        if isinstance(value, _Frame):
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
            frame.key = json.loads(token["text"].decode())
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
        return token.end(), json.loads(token["text"].decode()), start
    if token["number"] is not None:
        return token.end(), _number(token["number"].decode(), bool(token["float"])), start
    return token.end(), _WORDS[token["word"]], start


def _number(token: str, is_float: bool) -> float | int:
    if not is_float:
        return integer_of(token)
    try:
        return float_of(token)
    except ValueError as error:
        _refuse(str(error), f"{token[:40]!r} cannot be kept as a number")


def _peek(raw: bytes, at: int) -> bytes:
    token = _TOKEN.match(raw, at)
    return b"" if token is None else token[0].lstrip(_BLANK)


def _mark(raw: bytes, at: int, allowed: bytes) -> tuple[bytes, int]:
    token = _TOKEN.match(raw, at)
    if token is None or token["mark"] is None or token["mark"] not in allowed:
        _refuse("json-invalid", f"not JSON at byte {at}")
    return token["mark"], token.end()
