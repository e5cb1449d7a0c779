"""What the rules need to know of a surface event's data: its message, roles, blocks and calls."""

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from surfacelog import lossless
from surfacelog.errors import ContractError

__all__ = ["Block", "Body", "Message", "body_of", "call_of", "result_digest"]


class Block(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A content block; members that have the wrong type are kept as they are."""

    type: Any = None
    id: Any = None
    tool_name: Any = None
    tool: Any = UNSET


class Message(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    """A message as far as the rules look into it."""

    content: list[Block]
    role: Any = None
    tool_call_id: Any = None
    is_error: Any = None


class _Wrapper(msgspec.Struct, frozen=True, gc=False, rename="camel"):
    message: Raw
    header_seq: Any = UNSET
    error: Raw | msgspec.UnsetType = UNSET


class Body(msgspec.Struct, frozen=True, gc=False):
    """`raw`: the message's bytes as they came. `header_seq`: UNSET when absent. `error`: whether data has one."""

    raw: bytes
    message: Message
    header_seq: Any = UNSET
    error: bool = False


_wrapper = msgspec.json.Decoder(_Wrapper)
_message = msgspec.json.Decoder(Message)


def body_of(kind: str, data: bytes) -> Body:
    """The body of a surface event of type `kind`; raises `message-invalid`."""
    try:
        if kind == "user/message":
            return Body(data, _message.decode(data))
        wrapper = _wrapper.decode(data)
        raw = bytes(wrapper.message)
        return Body(raw, _message.decode(raw), wrapper.header_seq, wrapper.error is not UNSET)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _careful(kind, data)


def _careful(kind: str, data: bytes) -> Body:
    value = lossless.read(data)
    raw, header_seq, error = data, UNSET, False
    if kind != "user/message":
        slices = lossless.members(data)
        if slices is None or "message" not in slices:
            raise ContractError("message-invalid", "data has no message")
        raw = slices["message"]
        header_seq, error = value.get("headerSeq", UNSET), "error" in value
        value = value["message"]
    try:
        message = msgspec.convert(value, Message)
    except msgspec.ValidationError:
        raise ContractError(
            "message-invalid", "a message is an object whose content is a list of blocks (objects)"
        ) from None
    return Body(raw, message, header_seq, error)


def call_of(strict: bool, body: Body, data: bytes) -> str:
    """The id of the call that a tool result answers, or an empty string."""
    if strict:
        call = body.message.tool_call_id
    else:
        first = lossless.read(data)["message"]["content"][:1]
        call = first[0].get("toolCallId", first[0].get("callId")) if first else None
    return call if type(call) is str else ""


def result_digest(strict: bool, data: bytes) -> str:
    """Hex digest of a tool result's data without its content: equal exactly when the rest is deeply equal.
    Raises `message-invalid`."""
    value = lossless.read(data)
    holder = value["message"]
    if not strict:
        blocks = holder["content"]
        holder = blocks[0] if blocks else {}
    if type(holder.pop("content", None)) is not list:
        raise ContractError("message-invalid", "a tool result's content is a list of blocks")
    return blake2b(lossless.canonical(value), digest_size=16).hexdigest()
