"""What a sender can make the core do: the Python lines that run for an input, counted, whatever the machine."""

import gc
import sys
from collections.abc import Callable
from types import FrameType
from typing import Any

import pytest

from surfacelog import lossless
from surfacelog.derive import derive
from surfacelog.derive import offload as offload_images
from surfacelog.events import Draft, check_line, decode_event, encode_line, read_draft, read_event, seal
from surfacelog.frozen import freeze
from surfacelog.header import read_header
from surfacelog.lifecycle import report
from surfacelog.surface import Surface
from tests.unit.acts import assistant, image, log, offload, result, said, user
from tests.unit.records_room import opened

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


def _surface(*drafts: Draft, checks: str = "surface") -> Surface:
    surface = Surface(checks=checks)
    for offered in drafts:
        _advance(surface, offered)
    return surface


def _advance(surface: Surface, offered: Draft) -> None:
    surface.apply(surface.plan(read_event(encode_line(offered, surface.next_seq, 0))))


def _made(count: int) -> dict[str, Callable[[], object]]:
    """What one sender can have done, each with `count` elements."""
    users = _surface(*[user(said("u")) for _ in range(count)])
    images = [user(*[image() for _ in range(count)]), user(image("\ud800"), *[image() for _ in range(count)])]
    pictures, strange = (_surface(message) for message in images)
    singles = _surface(*[user(image()) for _ in range(count)])
    marked = derive(read_event(encode_line(images[1], 0, 0)))
    assert marked is not None
    session, lines = opened(), [user(said("u"))] * count
    header = b'{"id":"s","createdAt":1,"vocabulary":[%b]}'
    seqs = list(range(count))
    called = read_event(encode_line(assistant(*map(str, seqs)), 0, 0))
    answered = read_event(encode_line(result(str(count - 1)), 1, 0))
    return {
        "events in a commit": lambda: session.put(session.commit(*lines)),
        "calls in a message": lambda: _advance(_surface(), assistant(*map(str, seqs))),
        "sources": lambda: _advance(users, user(said("s"), over=(1, 1), sources=seqs)),
        "nodes in a range": lambda: _advance(users, user(said("s"), over=(0, count - 1), sources=seqs[::-1])),
        "targets": lambda: _advance(singles, offload(*[(seq, [0]) for seq in seqs])),
        "images of a target": lambda: _advance(pictures, offload((0, seqs))),
        "images of a strange target": lambda: _advance(strange, offload((0, seqs))),
        "images derived": lambda: offload_images(marked, seqs),
        "a message frozen": lambda: freeze(seqs),
        "names with lone surrogates": lambda: _advance(_surface(), assistant(*[f"\ud800{seq}" for seq in seqs])),
        "calls followed": lambda: report([called, *[answered] * count]),
        "a vocabulary": lambda: read_header(header % b",".join(b'"%d"' % seq for seq in seqs[:256])),
    }


@pytest.mark.parametrize("what", _made(1))
def test_the_work_grows_with_the_input_and_no_faster(what: str) -> None:
    little, much = (lines_run(_made(count)[what]) for count in (200, 800))
    assert much < 4.4 * little + 100


def test_a_tiny_event_on_a_large_surface_is_little_work() -> None:
    def work(count: int, checks: str) -> int:
        calls = [assistant("a"), result("a")] * (count // 2)
        surface = _surface(user(*[image() for _ in range(count)]), *calls, user(said("u")), checks=checks)
        tiny = [
            offload((0, [count // 2])),
            user(said("s"), over=(count // 2 * 2 - 1, count // 2 * 2)),
            log("turn/end"),
        ]
        _advance(surface, offload((0, [0])))  # A surface that was only appended to is put in order once.
        return lines_run(lambda: [_advance(surface, offered) for offered in tiny])

    for checks in ("surface", "paired"):
        assert work(1000, checks) <= work(100, checks) + 200
