"""Events to append, as drafts: the shapes of both contracts, short enough to write many of them."""

from typing import Any

from surfacelog.events import Draft
from surfacelog.session import draft

__all__ = ["TOOL", "assistant", "header", "image", "log", "offload", "op", "result", "said", "user"]

TOOL = {"name": "read", "description": "d", "parameters": {"type": "object"}}


def said(text: str) -> dict[str, Any]:
    """A text block."""
    return {"type": "text", "text": text}


def image(name: str = "i") -> dict[str, Any]:
    """An image block."""
    return {"type": "image", "attachment": {"id": name}}


def op(start: int | None, end: int | None = None, contract: str = "v4") -> dict[str, Any]:
    """surfaceOp and sourceEventSeqs of a replace of `start` to `end`, or of an append when `start` is None."""
    if start is None:
        return {"surface_op": "append"}
    last = start if end is None else end
    keys = ("startSeq", "endSeq") if contract == "v4" else ("start", "end")
    return {"surface_op": {"op": "replace", keys[0]: start, keys[1]: last}}


def user(*blocks: dict[str, Any], over: tuple[int, int] | None = None, sources: list[int] | None = None) -> Draft:
    """A user message, in the place of the nodes from one seq to another if `over` is given."""
    extra = op(*over) if over else op(None)
    if over:
        extra["source_event_seqs"] = sources if sources is not None else list(over)[: 1 + (over[0] != over[1])]
    return draft("user/message", {"id": "u", "role": "user", "content": list(blocks)}, **extra)


def assistant(*calls: str, over: int | None = None) -> Draft:
    """An assistant message that makes calls. v4 forbids sources on it, so it can only be appended there."""
    content = [
        said("a"),
        *({"type": "tool-call", "id": call, "name": "read", "arguments": "{}"} for call in calls),
    ]
    data = {"message": {"id": "a", "role": "assistant", "content": content}, "stream": []}
    return draft("assistant/message", data, **op(over))


def result(
    call: str, *blocks: dict[str, Any], over: int | None = None, contract: str = "v4", **more: Any
) -> Draft:
    """A tool result, in the place of another if `over` is given; `more` goes into data."""
    content = list(blocks) or [said("r")]
    if contract == "v4":
        message: dict[str, Any] = {"id": "t", "role": "tool", "toolCallId": call, "content": content}
    else:
        message = {"role": "user", "content": [{"type": "tool-result", "toolCallId": call, "content": content}]}
    extra = op(over, contract=contract)
    if over is not None:
        extra["source_event_seqs"] = [over]
    return draft("tool/result", {"message": message, **more}, **extra)


def log(kind: str, data: Any = None) -> Draft:
    """A log-only event."""
    return draft(kind, {} if data is None else data)


def offload(*targets: tuple[int, list[int]]) -> Draft:
    """An image offload of (seq, indexes)."""
    return log("image/offload", {"targets": [{"seq": seq, "imageIndexes": indexes} for seq, indexes in targets]})


def header(*tools: dict[str, Any]) -> Draft:
    """A request header with these tools."""
    return log("request/header", {"header": {"config": {}, **({"tools": list(tools)} if tools else {})}})
