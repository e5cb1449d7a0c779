"""From an event to the message that the model sees: slices of the bytes that came in, never a re-encoding."""

import re
from collections.abc import Collection, Iterable
from typing import Any

import msgspec
from msgspec import Raw

from surfacelog import lossless
from surfacelog.events import Event

__all__ = ["derive", "is_empty", "offload"]

_EMPTY = re.compile(rb"\[[ \t\r\n]*\]\Z|\"\"\Z")
_UNWRAPPED = "user/message"
_WRAPPED = frozenset({"system/message", "developer/message", "assistant/message", "tool/result"})
_EMPTY_GIVES_NONE = _WRAPPED - {"tool/result"}


class _Wrapper(msgspec.Struct, gc=False):
    message: Raw


class _Block(msgspec.Struct, gc=False):
    type: Any = None


class _Content(msgspec.Struct, gc=False):
    content: Raw


_wrapper = msgspec.json.Decoder(_Wrapper)
_content = msgspec.json.Decoder(_Content)
_typed = msgspec.json.Decoder(list[_Block])
_members = msgspec.json.Decoder(dict[str, Raw])
_elements = msgspec.json.Decoder(list[Raw])
_unread = (msgspec.MsgspecError, ValueError, RecursionError)


def derive(event: Event, offloaded: Collection[int] = ()) -> bytes | None:
    """The derived message as JSON bytes, None when the event gives none. `offloaded`: indexes of image blocks,
    counted front to back, that are marked so. Expects an event that its contract accepts."""
    kind = event.type
    if kind == _UNWRAPPED:
        message: bytes | None = bytes(event.data)
    elif kind in _WRAPPED:
        message = _message_of(bytes(event.data))
        if message is None or (kind in _EMPTY_GIVES_NONE and is_empty(message)):
            return None
    else:
        return None
    return offload(message, offloaded) if offloaded and message is not None else message


def _message_of(data: bytes) -> bytes | None:
    try:
        return bytes(_wrapper.decode(data).message)
    except _unread:
        return (lossless.members(data) or {}).get("message")


def is_empty(message: bytes) -> bool:
    """Whether the message's content is empty."""
    try:
        content: bytes | None = bytes(_content.decode(message).content)
    except _unread:
        content = (lossless.members(message) or {}).get("content")
    return content is None or _EMPTY.match(content) is not None


def offload(message: bytes, indexes: Iterable[int]) -> bytes:
    """The message with `"offloaded":true` on the image blocks of these indexes. Members keep their order and
    bytes; one call with all indexes and one call after another give the same bytes."""
    chosen = set(indexes)
    fields = _fields(message)
    blocks = _blocks(fields["content"])
    image = -1
    for place, kind in enumerate(_kinds(fields["content"])):
        if kind == "image":
            image += 1
            if image in chosen:
                blocks[place] = _object(_fields(blocks[place]) | {"offloaded": b"true"})
    return _object(fields | {"content": b"[" + b",".join(blocks) + b"]"})


def _kinds(content: bytes) -> list[Any]:
    """The types of the blocks, read all at once: a message may have a hundred thousand."""
    try:
        return [block.type for block in _typed.decode(content)]
    except _unread:
        return [block.get("type") if type(block) is dict else None for block in lossless.read_again(content)]


def _fields(raw: bytes) -> dict[str, bytes]:
    try:
        return {key: bytes(value) for key, value in _members.decode(raw).items()}
    except _unread:
        return lossless.members(raw) or {}


def _blocks(raw: bytes) -> list[bytes]:
    try:
        return [bytes(value) for value in _elements.decode(raw)]
    except _unread:
        return lossless.elements(raw) or []


def _object(fields: dict[str, bytes]) -> bytes:
    return b"{" + b",".join(lossless.canonical(key) + b":" + value for key, value in fields.items()) + b"}"
