"""What the rules need to know of a surface event's data: message, blocks and, for a tool result, the rest."""

from hashlib import sha256
from typing import Any, NoReturn

from surfacelog.errors import ContractError
from surfacelog.lossless import canonical, storable

__all__ = ["Blocks", "Json", "calls_of", "read_message", "read_result"]

# 128 bits: equal digests stand for equal values.
DIGEST_CHARS = 32
Json = Any
Blocks = list[dict[str, Json]]


def _refuse(message: str) -> NoReturn:
    raise ContractError("message-invalid", message)


def read_message(kind: str, data: Json, checked: bool) -> tuple[dict[str, Json], Blocks, list[Json]]:
    """(message, blocks, types of the blocks) of a surface event's data; raises `message-invalid`, or takes what is
    not there for empty when not `checked`."""
    message: Json = data if kind == "user/message" else data.get("message") if type(data) is dict else None
    blocks: Json = message.get("content") if type(message) is dict else None
    if type(blocks) is list:
        try:
            return message, blocks, [block.get("type") for block in blocks]
        except AttributeError:
            if checked:
                _refuse("a content block is an object")
            blocks = [block for block in blocks if type(block) is dict]
            return message, blocks, [block.get("type") for block in blocks]
    if checked:
        _refuse("a surface event's data has a message, an object whose content is a list of blocks")
    return message if type(message) is dict else {}, [], []


def read_result(data: Json, message: dict[str, Json], strict: bool, checked: bool) -> tuple[str, str]:
    """(digest, call) of a tool result: the hex digest of its data without the content, equal exactly when the rest
    is deeply equal, and the (storable) id of the call that it answers. Call id and content are in the message, in
    v0 in its first block. Raises `message-invalid` as `read_message` does."""
    holder: Json = message
    if not strict:
        blocks = message.get("content")
        holder = blocks[0] if type(blocks) is list and blocks else None
    content = holder.get("content") if type(holder) is dict else None
    if type(content) is not list:
        if checked:
            _refuse("a tool result's content is a list of blocks")
        if type(holder) is not dict or content is None:
            return _digest(data), ""
    # Taken out and put back: a copy of all around it would cost as much as the digest.
    del holder["content"]
    try:
        digest = _digest(data)
    finally:
        holder["content"] = content
    call = holder.get("toolCallId")
    if call is None and not strict:
        call = holder.get("callId")
    return digest, storable(call) if type(call) is str else ""


def _digest(value: Json) -> str:
    return sha256(canonical(value)).hexdigest()[:DIGEST_CHARS]


def calls_of(blocks: Blocks) -> tuple[str, ...]:
    """The (storable) ids of the calls that an assistant message makes."""
    made = [block.get("id") for block in blocks if block.get("type") == "tool-call"]
    return tuple([storable(call) for call in made if type(call) is str])
