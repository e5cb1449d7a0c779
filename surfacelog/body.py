"""What the rules need to know of a surface event's data: its message, roles, blocks and calls."""

from hashlib import blake2b
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from surfacelog import lossless
from surfacelog.errors import ContractError

__all__ = ["Block", "Body", "Message", "body_of", "result_of"]


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


def body_of(kind: str, data: bytes, *, checked: bool = True) -> Body:
    """The body of a surface event of type `kind`; raises `message-invalid`, unless `checked` is off: then a
    message without a list of blocks counts as one without blocks."""
    try:
        if kind == "user/message":
            return Body(data, _message.decode(data))
        wrapper = _wrapper.decode(data)
        raw = bytes(wrapper.message)
        return Body(raw, _message.decode(raw), wrapper.header_seq, wrapper.error is not UNSET)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return _careful(kind, data, checked)


def _careful(kind: str, data: bytes, checked: bool) -> Body:
    value = lossless.read(data)
    raw, header_seq, error = data, UNSET, False
    if kind != "user/message":
        slices = lossless.members(data) or {}
        raw = slices.get("message", b"null")
        if type(value) is dict:
            header_seq, error = value.get("headerSeq", UNSET), "error" in value
            value = value.get("message")
    try:
        message = msgspec.convert(value, Message)
    except msgspec.ValidationError:
        if checked:
            raise ContractError(
                "message-invalid", "a message is an object whose content is a list of blocks (objects)"
            ) from None
        message = Message([])
    return Body(raw, message, header_seq, error)


def result_of(strict: bool, data: bytes, *, checked: bool = True) -> tuple[str, str]:
    """(digest, call) of a tool result: the hex digest of its data without the content, equal exactly when the rest
    is deeply equal, and the id of the call that it answers. Raises `message-invalid` as `body_of`."""
    value = lossless.read(data)
    holder = value.get("message") if type(value) is dict else None
    if not strict and type(holder) is dict:
        blocks = holder.get("content")
        holder = blocks[0] if type(blocks) is list and blocks else None
    if type(holder) is not dict or type(holder.pop("content", None)) is not list:
        if checked:
            raise ContractError("message-invalid", "a tool result's content is a list of blocks")
        holder = holder if type(holder) is dict else {}
    call = holder.get("toolCallId") if strict else holder.get("toolCallId", holder.get("callId"))
    digest = blake2b(lossless.canonical(value), digest_size=16).hexdigest()
    return digest, call if type(call) is str else ""
