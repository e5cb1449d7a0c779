"""What a sender can make the core do: the Python lines that run for an input, counted, whatever the machine."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from surfacelog import lossless
from surfacelog.events import check_line, decode_event, read_draft, seal

COUNT = 20_000


def lines_run(action: Callable[[], object]) -> int:
    """How many lines of Python `action` runs through."""
    count = 0

    def trace(frame: FrameType, event: str, arg: Any) -> Any:
        nonlocal count
        count += event == "line"
        return trace

    before = sys.gettrace()
    gc.disable()  # Whoever listens to collections runs lines of his own.
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
        gc.enable()
    return count


def test_the_counter_counts() -> None:
    assert lines_run(lambda: [None for _ in range(10)]) < lines_run(lambda: "".join(str(n) for n in range(1000)))


NUMBERS = b"[" + b"0," * COUNT + b"0]"
HOSTILE = {
    "lone surrogate": b'{"a":"\\ud800","b":%b}' % NUMBERS,
    "-0 in a text": b'{"a":"from -0 to 1","b":%b}' % NUMBERS,
    "-0 in many texts": b'{"a":[%b0]}' % (b'"-0 ",' * COUNT),
    "both": b'{"a":"\\ud800 -0 ","b":%b}' % NUMBERS,
    "a deep one": b'{"a":"\\ud800","c":%b,"b":%b}' % (b"[" * 500 + b"]" * 500, NUMBERS),
    "many brackets": b'{"a":"\\ud800","b":[%b0]}' % (b"[],{}," * COUNT),
}


@pytest.mark.parametrize("data", HOSTILE.values(), ids=HOSTILE)
def test_no_text_makes_the_readers_go_token_by_token(data: bytes) -> None:
    line = b'{"type":"x","seq":0,"time":0,"data":%b,"ignorable":true}' % data
    offer = b'{"type":"x","data":%b}' % data
    reads: list[Callable[[], object]] = [
        lambda: lossless.read(data),
        lambda: lossless.read_again(data),
        lambda: lossless.members(data),
        lambda: lossless.canonical(lossless.read(data)),
        lambda: check_line(line),
        lambda: decode_event(line),
        lambda: seal(read_draft(offer), 0, 0),
    ]
    for read in reads:
        assert lines_run(read) < 500
