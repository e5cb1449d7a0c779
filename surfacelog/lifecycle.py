"""How turns, steps, tool calls and compactions nest in a session: what is open, and what does not fit.

A reader's check of what a client wrote. The ledger reports it and never refuses an append for it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from surfacelog.events import Event, read_data

__all__ = [
    "Finding",
    "Nesting",
    "OpenCall",
    "OpenCompaction",
    "OpenStep",
    "call_ids",
    "report",
    "result_call_id",
]


class Finding(msgspec.Struct, frozen=True):
    """One thing that does not fit. `index`: place of the event in what was read, from 0."""

    index: int
    seq: int
    text: str


class OpenStep(msgspec.Struct, frozen=True):
    """A step as its start named it. The numbers are the client's, in whatever JSON they came."""

    turn: Any
    step: Any


class OpenCall(msgspec.Struct):
    """A tool call without its result. `message`: seq of the assistant message; `started`: seq of the
    `tool/call`, or None while the tool has not been started."""

    id: str
    message: int
    turn: Any
    step: Any
    started: int | None = None


class OpenCompaction(msgspec.Struct, frozen=True):
    """A compaction that has started and not ended."""

    id: Any
    turn: Any


class _Data(msgspec.Struct, rename="camel"):
    turn: Any = None
    step: Any = None
    call_id: Any = None
    compaction_id: Any = None
    message: Any = None


_data = msgspec.json.Decoder(_Data)


class Nesting:
    """Follows events one by one. Open things are as after the last event; `findings` grows.

    Calls belong to the step that they were made in: its end drops them, answered or not, so that a dead call
    never touches a later turn.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.turn_open = False
        self.turn: Any = None
        self.step: OpenStep | None = None
        self._calls: dict[str, OpenCall] = {}
        self.compactions: list[OpenCompaction] = []
        self.last: Event | None = None
        self._index = -1
        self._last_turn = 0
        self._last_step = 0
        self._rules: dict[str, Callable[[_Data], None]] = {
            "turn/start": self._turn_start,
            "turn/end": self._turn_end,
            "step/start": self._step_start,
            "step/end": self._step_end,
            "system/message": self._in_step,
            "developer/message": self._in_step,
            "assistant/message": self._assistant,
            "tool/call": self._tool_call,
            "tool/result": self._tool_result,
            "compaction/start": self._compaction_start,
            "compaction/summary": self._compaction_summary,
            "compaction/end": self._compaction_end,
        }

    @property
    def calls(self) -> list[OpenCall]:
        """The calls without a result, in the order in which they were made."""
        return list(self._calls.values())

    def follow(self, events: Iterable[Event]) -> "Nesting":
        """Follows all of `events`; returns itself."""
        for event in events:
            self.feed(event)
        return self

    def feed(self, event: Event) -> None:
        """One event further."""
        self.last = event
        self._index += 1
        rule = self._rules.get(event.type)
        if rule is None or _is_replace(event):
            return
        data = _read(event.data)
        if data is None:
            self._find("the data of this event is not an object")
        else:
            rule(data)

    def _find(self, text: str) -> None:
        assert self.last is not None
        self.findings.append(Finding(self._index, self.last.seq, f"{self.last.type}: {text}"))

    def _turn_start(self, data: _Data) -> None:
        if self.turn_open:
            self._find(f"turn {self.turn} is still open")
            self._drop_step()
        self._check_number("turn", data.turn, self._last_turn)
        self.turn_open, self.turn = True, data.turn
        self._last_turn = _number(data.turn, self._last_turn)
        self._last_step = 0

    def _turn_end(self, data: _Data) -> None:
        if self.step is not None:
            self._find(f"step {self.step.step} is still open")
        if not self.turn_open:
            self._find("no turn is open")
        elif data.turn != self.turn:
            self._find(f"turn {self.turn} is open, not {data.turn}")
        self._drop_step()
        self.turn_open, self.turn = False, None

    def _step_start(self, data: _Data) -> None:
        if self.step is not None:
            self._find(f"step {self.step.step} is still open")
        if not self.turn_open:
            self._find("no turn is open")
        elif data.turn != self.turn:
            self._find(f"turn {self.turn} is open, not {data.turn}")
        self._check_number("step", data.step, self._last_step)
        self._drop_step()
        self.step = OpenStep(data.turn, data.step)
        self._last_step = _number(data.step, self._last_step)

    def _step_end(self, data: _Data) -> None:
        self._check_place(data)
        if self.calls:
            names = ", ".join(call.id for call in self.calls)
            self._find(f"the step ends while calls are not answered: {names}")
        self._drop_step()

    def _assistant(self, data: _Data) -> None:
        self._check_place(data)
        assert self.last is not None
        for call_id in call_ids(data.message):
            if call_id in self._calls:
                self._find(f"call {call_id} is open already")
                continue
            self._calls[call_id] = OpenCall(call_id, self.last.seq, data.turn, data.step)

    def _tool_call(self, data: _Data) -> None:
        self._check_place(data)
        assert self.last is not None
        call = self._open_call(data.call_id)
        if call is None:
            self._find(f"no message made the call {data.call_id}, or it is answered already")
        elif call.started is not None:
            self._find(f"call {call.id} was started before, at {call.started}")
        else:
            call.started = self.last.seq

    def _tool_result(self, data: _Data) -> None:
        self._check_place(data)
        call_id = result_call_id(data.message)
        call = self._open_call(call_id)
        if call is None:
            self._find(f"it answers no open call: {call_id}")
        else:
            del self._calls[call.id]

    def _in_step(self, data: _Data) -> None:
        # Such a message may stand between turns too; only one that names its place must stand there.
        if data.turn is not None or data.step is not None:
            self._check_place(data)

    def _compaction_start(self, data: _Data) -> None:
        if self.compactions:
            self._find(f"compaction {self.compactions[-1].id} is still open")
        self.compactions.append(OpenCompaction(data.compaction_id, data.turn))

    def _compaction_summary(self, data: _Data) -> None:
        if all(found.id != data.compaction_id for found in self.compactions):
            self._find(f"no compaction {data.compaction_id} is open")

    def _compaction_end(self, data: _Data) -> None:
        rest = [found for found in self.compactions if found.id != data.compaction_id]
        if len(rest) == len(self.compactions):
            self._find(f"no compaction {data.compaction_id} is open")
        self.compactions = rest

    def _open_call(self, call_id: Any) -> OpenCall | None:
        return self._calls.get(call_id) if type(call_id) is str else None

    def _drop_step(self) -> None:
        self.step = None
        self._calls = {}

    def _check_place(self, data: _Data) -> None:
        if self.step is None:
            self._find("no step is open")
        elif (data.turn, data.step) != (self.step.turn, self.step.step):
            self._find(
                f"turn {self.step.turn} step {self.step.step} is open, not turn {data.turn} step {data.step}"
            )

    def _check_number(self, noun: str, number: Any, last: int) -> None:
        if number != last + 1 or isinstance(number, bool):
            self._find(f"{noun} {number} comes where {noun} {last + 1} is due")


def report(events: Iterable[Event]) -> list[Finding]:
    """What does not fit in `events`, in order; empty when all nests."""
    return Nesting().follow(events).findings


def result_call_id(message: Any) -> Any:
    """The id of the call that a tool result's message answers, in either contract's shape; None without one."""
    if not isinstance(message, dict):
        return None
    found = message.get("toolCallId")
    content = message.get("content")
    if found is None and isinstance(content, list) and content and isinstance(content[0], dict):
        found = content[0].get("toolCallId", content[0].get("callId"))
    if found is None and isinstance(message.get("source"), dict):
        found = message["source"].get("callId")
    return found


def call_ids(message: Any) -> list[str]:
    """The ids of the tool calls that an assistant message makes, in order."""
    content = message.get("content") if isinstance(message, dict) else None
    if not isinstance(content, list):
        return []
    return [
        block["id"]
        for block in content
        if isinstance(block, dict) and block.get("type") == "tool-call" and isinstance(block.get("id"), str)
    ]


def _read(raw: Raw) -> _Data | None:
    try:
        return _data.decode(raw)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # The slow reader knows texts that the fast one refuses, such as lone surrogate escapes.
        value = read_data(raw)
    return msgspec.convert(value, _Data) if isinstance(value, dict) else None


def _is_replace(event: Event) -> bool:
    """A replacement stands for events whose place was checked when they came."""
    op = event.surface_op
    return op is not UNSET and isinstance(op, Raw) and bytes(op)[:1] == b"{"


def _number(value: Any, otherwise: int) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise
