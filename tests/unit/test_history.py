"""Random histories: whichever way a session is folded, it comes out the same, byte for byte, after every step."""

from collections.abc import Callable
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from surfacelog.accept import accept
from surfacelog.derive import derive, offload
from surfacelog.errors import ContractError
from surfacelog.events import Draft, check_line, decode_event, encode_line, read_event
from surfacelog.fold import fold
from surfacelog.header import Header
from surfacelog.lossless import storable
from surfacelog.node import Node
from surfacelog.records import Record
from surfacelog.session import Session, draft
from surfacelog.snapshot import pieces, restore
from surfacelog.state import SessionState
from surfacelog.surface import Surface

CALLS = ("a", "\ud800", "\0b")


@st.composite
def offers(draw: st.DrawFn) -> Callable[[Surface], Draft]:
    """An event that fits a surface more often than not; it is made when the surface is known."""
    kind = draw(
        st.sampled_from(
            "user user assistant result result system log replace replace rewrite offload offload "
            "header addition end".split()
        )
    )
    numbers = draw(st.tuples(*[st.integers(0, 7)] * 4))
    text = draw(st.sampled_from(["hi", "\ud800", "\u2028", "-0, ", "é", ""]))
    return lambda surface: _MAKERS[kind](surface, text, *numbers)


def _blocks(text: str, images: int) -> list[dict[str, Any]]:
    return [{"type": "text", "text": text}] * (images % 2) + [{"type": "image", "n": n} for n in range(images % 4)]


def _user(surface: Surface, text: str, a: int, *_: int, **extra: Any) -> Draft:
    extra = extra or {"surface_op": "append"}
    return draft("user/message", {"role": "user", "content": _blocks(text, a)}, **extra)


def _system(surface: Surface, text: str, a: int, *_: int) -> Draft:
    data = {"message": {"role": "system", "content": _blocks(text, a)}}
    return draft("system/message", data, surface_op="append")


def _assistant(surface: Surface, text: str, a: int, b: int, *_: int) -> Draft:
    calls = [{"type": "tool-call", "id": call} for call in CALLS[: a % 3]]
    data = {"message": {"role": "assistant", "content": calls + _blocks(text, b % 2)}}
    return draft("assistant/message", data, surface_op="append")


def _result(surface: Surface, text: str, a: int, b: int, *_: int, **extra: Any) -> Draft:
    extra = extra or {"surface_op": "append"}
    message = {"role": "tool", "toolCallId": CALLS[a % 3], "content": _blocks(text, b)}
    if surface_is_v0(surface):
        message = {"content": [{"type": "tool-result", "callId": CALLS[a % 3], "content": _blocks(text, b)}]}
    return draft("tool/result", {"message": message}, **extra)


def surface_is_v0(surface: Surface) -> bool:
    """Whether the surface follows the older contract."""
    try:
        surface.plan(read_event(b'{"type":"image/offload","seq":%d,"time":0,"data":{}}' % surface.next_seq))
    except ContractError as error:
        return error.code == "type-unknown"
    raise AssertionError("an offload without targets passed")


def _range(surface: Surface, a: int, b: int) -> dict[str, Any]:
    nodes = surface.nodes
    start = a % len(nodes)
    shadowed = nodes[start : start + 1 + b % 3]
    keys = ("start", "end") if surface_is_v0(surface) else ("startSeq", "endSeq")
    op = {"op": "replace", keys[0]: shadowed[0], keys[1]: shadowed[-1]}
    return {"surface_op": op, "source_event_seqs": shadowed}


def _replace(surface: Surface, text: str, a: int, b: int, c: int, d: int) -> Draft:
    return _user(surface, text, c, **(_range(surface, a, b) if surface.nodes else {}))


def _rewrite(surface: Surface, text: str, a: int, b: int, c: int, d: int) -> Draft:
    results = [node for node in surface.entries if node.type == "tool/result"]
    if not results:
        return _user(surface, text, a)
    node = results[a % len(results)]
    at = surface.nodes.index(node.seq)
    return _result(surface, text, [storable(call) for call in CALLS].index(node.call), c, **_range(surface, at, 0))


def _offload(surface: Surface, text: str, a: int, b: int, c: int, d: int) -> Draft:
    with_images = [node for node in surface.entries if node.images] or [None]
    node = with_images[a % len(with_images)]
    left = [] if node is None else [index for index in range(node.images) if index not in node.offloaded]
    targets = [{"seq": 0 if node is None else node.seq, "imageIndexes": left[: 1 + b % 2]}]
    return draft("image/offload", {"targets": targets})


def _header(surface: Surface, text: str, a: int, *_: int) -> Draft:
    tools = [{"name": "read", "description": "d", "parameters": {}}, {"name": "read"}, {"name": "\ud800"}][: a % 4]
    return draft("request/header", {"header": {"tools": tools} if tools else {}})


def _addition(surface: Surface, text: str, a: int, b: int, *_: int) -> Draft:
    headers = list(surface.headers) or [0]
    block = {"type": "tool-addition", "toolName": "read"}
    data = {"message": {"role": "developer", "content": [block]}, "headerSeq": headers[a % len(headers)]}
    return draft("developer/message", data, surface_op="append")


def _log(surface: Surface, text: str, a: int, *_: int) -> Draft:
    return draft(["todo/write", "x/y", "turn/start", "goal/change"][a % 4], {"t": text}, ignorable=a > 3)


def _end(surface: Surface, text: str, a: int, *_: int) -> Draft:
    return draft(["step/end", "turn/end"][a % 2], {})


_MAKERS: dict[str, Callable[..., Draft]] = {
    "user": _user,
    "system": _system,
    "assistant": _assistant,
    "result": _result,
    "log": _log,
    "replace": _replace,
    "rewrite": _rewrite,
    "offload": _offload,
    "header": _header,
    "addition": _addition,
    "end": _end,
}


class Folds:
    """The same history folded in several ways at once. `check` compares them all."""

    def __init__(self, header: Header, cut: int) -> None:
        self.header = header
        self.cut = cut
        self.session = Session(header)
        self.planned = Surface(header.contract, checks=header.checks)
        self.state = SessionState()
        accept(self.state, Record("open", "o", header.encode()), 0)
        self.window: Surface | None = None
        self.projected: list[tuple[int, bytes]] = []
        self.offset = 0

    def offer(self, make: Callable[[Surface], Draft]) -> None:
        """Offers one event to every fold; all of them accept it, or refuse it with the same code."""
        offered = make(self.session.surface)
        seq = self.session.next_seq
        line = encode_line(offered, seq, seq)
        if seq == self.cut and self.window is None:
            self.window = restore(pieces(self.state)).surface
        answers = [self._session(offered), self._planned(line), self._accepted(line), self._window(line)]
        assert len({answer for answer in answers if answer is not None}) == 1, answers

    def _session(self, offered: Draft) -> str:
        try:
            self.session.append_draft(offered)
        except ContractError as error:
            return error.code
        return "ok"

    def _planned(self, line: bytes) -> str:
        try:
            plan = self.planned.plan(read_event(line))
        except ContractError as error:
            return error.code
        self.planned.apply(plan)
        return "ok"

    def _window(self, line: bytes) -> str | None:
        if self.window is None:
            return None
        try:
            self.window.advance(check_line(line))
        except ContractError as error:
            return error.code
        return "ok"

    def _accepted(self, line: bytes) -> str:
        self.offset += 1
        state = self.state
        # Every other record is decided by a state that was packed and unpacked first.
        if self.offset % 2:
            state = self.state = restore(pieces(state))
        record = Record("commit", f"c{self.offset}", line, prev=state.chain, seq=state.next_seq)
        verdict = accept(state, record, self.offset)
        for plan in verdict.plans:
            self._project(plan)
        return verdict.code or "ok"

    def _project(self, plan: Any) -> None:
        """What a projection keeps, from plans alone."""
        if plan.op == "append" and plan.message is not None:
            self.projected.append((plan.seq, plan.message))
        elif plan.op == "replace":
            gone = {node.seq for node in plan.removed}
            nodes = self.state.surface.nodes
            kept = [pair for pair in self.projected if pair[0] not in gone]
            if plan.message is not None:
                kept.append((plan.seq, plan.message))
            self.projected = sorted(kept, key=lambda pair: nodes.index(pair[0]))
        elif plan.op == "offload":
            chosen = {new.seq: set(new.offloaded) - set(old.offloaded) for _, old, new in plan.changed}
            self.projected = [
                (seq, offload(message, chosen[seq]) if seq in chosen else message)
                for seq, message in self.projected
            ]

    def check(self) -> None:
        """Everything is the same, whichever way it was folded."""
        session, contract = self.session, self.header.contract
        entries = list(session.surface.entries)
        messages = [(message.seq, message.json) for message in session.messages]
        trusted, careful = fold(session.lines, contract), fold(session.lines, contract, trusted=False)
        again = Session.load(session.lines, self.header)
        surfaces = [self.planned, self.state.surface, again.surface, *([self.window] if self.window else [])]
        for surface in surfaces:
            assert list(surface.entries) == entries
            assert surface.open_calls == session.surface.open_calls
            assert surface.headers == session.surface.headers
            assert surface.replace_generation == session.surface.replace_generation
            assert surface.content_generation == session.surface.content_generation
            assert surface.message_count == len(messages)
            assert self._derived(surface.entries) == messages
        for folded in (trusted, careful):
            assert folded.nodes == session.surface.nodes
            assert folded.messages() == messages
            assert folded.transcript == list(session.transcript)
            assert folded.content_generation == session.surface.content_generation
        assert [(message.seq, message.json) for message in again.messages] == messages
        assert self.projected == messages
        assert self.state.transcript_count == len(session.transcript)

    def _derived(self, entries: Any) -> list[tuple[int, bytes]]:
        return [(node.seq, message) for node in entries if (message := self._message(node)) is not None]

    def _message(self, node: Node) -> bytes | None:
        return derive(decode_event(self.session.lines[node.seq]), node.offloaded)


@settings(max_examples=120, deadline=None)
@given(
    st.sampled_from(["v4", "v4", "v0"]),
    st.sampled_from(["surface", "paired"]),
    st.integers(0, 12),
    st.lists(offers(), min_size=1, max_size=30),
)
def test_every_way_to_fold_a_history_gives_the_same_bytes_after_every_step(
    contract: Any, checks: Any, cut: int, made: list[Callable[[Surface], Draft]]
) -> None:
    folds = Folds(Header(id="s", created_at=0, contract=contract, checks=checks), cut)
    for make in made:
        folds.offer(make)
        folds.check()


def test_the_random_offers_reach_every_kind_of_step() -> None:
    # A property over histories that are all refused would prove nothing.
    done: set[str] = set()

    @settings(max_examples=150, deadline=None, derandomize=True)
    @given(st.lists(offers(), min_size=10, max_size=30))
    def walk(made: list[Callable[[Surface], Draft]]) -> None:
        session = Session()
        for make in made:
            offered = make(session.surface)
            try:
                session.append_draft(offered)
            except ContractError:
                continue
            over = offered.surface_op and b"replace" in bytes(offered.surface_op)
            done.add(offered.type + (" over" if over else ""))

    walk()
    assert {
        "user/message",
        "user/message over",
        "tool/result",
        "tool/result over",
        "assistant/message",
        "system/message",
        "developer/message",
        "image/offload",
        "request/header",
        "turn/end",
    } <= done
