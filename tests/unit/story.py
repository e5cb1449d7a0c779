"""Short stories: events written as (type, data) or (type, data, surfaceOp), numbered from 0."""

from typing import Any

import msgspec
from msgspec import UNSET, Raw

from surfacelog.events import Event

__all__ = ["assistant", "result", "story"]

TIME = 1_760_000_000_000
Moment = tuple[Any, ...]


def story(*moments: Moment) -> list[Event]:
    """The events of a session that begins."""
    events = []
    for seq, (kind, data, *op) in enumerate(moments):
        surface_op = Raw(msgspec.json.encode(op[0])) if op else UNSET
        events.append(Event(kind, seq, TIME + seq, Raw(msgspec.json.encode(data)), surface_op=surface_op))
    return events


def assistant(*calls: str, turn: int = 1, step: int = 1, op: Any = "append") -> Moment:
    """An assistant message that makes these calls."""
    blocks = [{"type": "tool-call", "id": call, "name": "read", "arguments": "{}"} for call in calls]
    message = {"id": "a", "role": "assistant", "content": blocks or [{"type": "text", "text": "hi"}]}
    return ("assistant/message", {"turn": turn, "step": step, "message": message, "stream": []}, op)


def result(call: str, *, turn: int = 1, step: int = 1, op: Any = "append") -> Moment:
    """The result of a call."""
    message = {"id": "r", "role": "tool", "toolCallId": call, "content": [{"type": "text", "text": "ok"}]}
    return ("tool/result", {"turn": turn, "step": step, "message": message}, op)
