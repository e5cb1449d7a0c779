"""The events that close what a log left open: crash repair of a cut tail, and the same for a fork.

Nothing is run again: a call that was started has an unknown outcome, one that was not is said to be so.
"""

import json
from collections.abc import Iterable
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from surfacelog.events import Event
from surfacelog.lifecycle import Nesting, OpenCall

__all__ = ["close", "repair"]

_UNKNOWN = (
    "ToolOutcomeUnknownError",
    "TOOL_OUTCOME_UNKNOWN",
    "The run ended while this tool was at work. Whether it took effect is not known; it was not run again.",
)
_NOT_STARTED = (
    "ToolNotStartedError",
    "TOOL_NOT_STARTED",
    "The run ended before this tool was started. It had no effect.",
)


def repair(events: Iterable[Event], contract: str = "v4") -> list[Event]:
    """The closers that a session of these events needs after a crash, numbered behind the last one and with its
    time (ms); empty when nothing is open. Repairing again with them adds nothing."""
    nesting = Nesting().follow(events)
    if nesting.last is None:
        return []
    return close(nesting, nesting.last.seq + 1, "interrupted", contract)


def close(nesting: Nesting, next_seq: int, reason: str, contract: str = "v4") -> list[Event]:
    """Closers for all that is open, innermost first, from `next_seq` on. `reason`: the kind that the turn ends
    with, "interrupted" or "forked"."""
    assert nesting.last is not None, "nothing was followed"
    time = nesting.last.time
    closers: list[Event] = []

    def add(kind: str, data: dict[str, Any]) -> None:
        closers.append(Event(kind, next_seq + len(closers), time, _raw(data)))

    for compaction in reversed(nesting.compactions):
        # Without an end, a reader that forbids overlap would never let another compaction start.
        add(
            "compaction/end",
            {
                "compactionId": compaction.id,
                "turn": compaction.turn,
                "error": f"the run was {reason} during the compaction",
            },
        )
    for call in nesting.calls:
        sources = UNSET if call.started is None else _raw([call.started])
        data = _result(call, next_seq + len(closers), contract)
        closers.append(
            Event(
                "tool/result",
                next_seq + len(closers),
                time,
                _raw(data),
                surface_op=Raw(b'"append"'),
                source_event_seqs=sources,
            )
        )
    if nesting.step is not None:
        add("step/end", {"turn": nesting.step.turn, "step": nesting.step.step})
    if nesting.turn_open:
        add("turn/end", {"turn": nesting.turn, "reason": {"kind": reason}})
    return closers


def _result(call: OpenCall, seq: int, contract: str) -> dict[str, Any]:
    name, code, text = _NOT_STARTED if call.started is None else _UNKNOWN
    content: list[dict[str, Any]] = [{"type": "text", "text": text}]
    message: dict[str, Any] = {"id": f"interrupted-tool-result-{call.id}-{seq}"}
    source = {"kind": "tool", "callId": call.id}
    if contract == "v0":
        block = {"type": "tool-result", "toolCallId": call.id, "content": content, "isError": True}
        message |= {"role": "user", "source": source, "content": [block]}
    else:
        message |= {"role": "tool", "toolCallId": call.id, "isError": True, "source": source, "content": content}
    return {"turn": call.turn, "step": call.step, "message": message, "error": {"name": name, "code": code}}


def _raw(value: Any) -> Raw:
    try:
        return Raw(msgspec.json.encode(value))
    except UnicodeEncodeError:
        # A call id may hold a lone surrogate; the other encoder writes it as an escape, as it came.
        return Raw(json.dumps(value).encode())
