"""What the rules need to know of a surface event's data: message, blocks and, for a tool result, the rest."""

from hashlib import blake2b
from typing import Any, NoReturn

from surfacelog.errors import ContractError
from surfacelog.lossless import canonical

__all__ = ["Json", "blocks_of", "call_of", "message_of", "rest_digest", "result_holder"]

Json = Any


def _refuse(message: str) -> NoReturn:
    raise ContractError("message-invalid", message)


def message_of(kind: str, data: Json, *, checked: bool = True) -> dict[str, Json]:
    """The message in the data of a surface event; raises `message-invalid`, or gives an empty one when not
    `checked`."""
    message = data if kind == "user/message" else data.get("message") if type(data) is dict else None
    if type(message) is not dict:
        if checked:
            _refuse("a surface event's data has a message, an object")
        return {}
    return message


def blocks_of(message: dict[str, Json], *, checked: bool = True) -> list[dict[str, Json]]:
    """The blocks of a message; raises `message-invalid`, or gives those that are objects when not `checked`."""
    blocks = message.get("content")
    if type(blocks) is list:
        for block in blocks:
            if type(block) is not dict:
                break
        else:
            return blocks
    if checked:
        _refuse("a message's content is a list of blocks, each an object")
    return [block for block in blocks if type(block) is dict] if type(blocks) is list else []


def result_holder(strict: bool, message: dict[str, Json], *, checked: bool = True) -> dict[str, Json]:
    """The object that holds a tool result's call id and content: the message, or in v0 its first block. Raises
    `message-invalid`, or gives an empty one when not `checked`."""
    holder: Json = message
    if not strict:
        blocks = message.get("content")
        holder = blocks[0] if type(blocks) is list and blocks else None
    if type(holder) is dict and (type(holder.get("content")) is list or not checked):
        return holder
    if checked:
        _refuse("a tool result's content is a list of blocks")
    return {}


def call_of(strict: bool, holder: dict[str, Json]) -> str:
    """The id of the call that a tool result answers, or an empty string."""
    call = holder.get("toolCallId")
    if call is None and not strict:
        call = holder.get("callId")
    return call if type(call) is str else ""


def rest_digest(data: Json, message: dict[str, Json], holder: dict[str, Json]) -> str:
    """Hex digest of a tool result's data without its content: equal exactly when the rest is deeply equal."""
    rest = holder.copy()
    rest.pop("content", None)
    if holder is not message and message:
        rest = {**message, "content": [rest, *message["content"][1:]]}
    return blake2b(canonical({**data, "message": rest} if message else data), digest_size=16).hexdigest()
