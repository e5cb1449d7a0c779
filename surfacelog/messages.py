"""Derived messages as shared immutable objects, and a cache that follows a surface."""

from collections.abc import Callable
from typing import Any, NoReturn

from surfacelog.frozen import freeze
from surfacelog.lossless import read
from surfacelog.node import Node
from surfacelog.surface import Surface

__all__ = ["Message", "MessageCache"]


class Message:
    """One message that the model sees. `json`: the bytes that are served everywhere."""

    __slots__ = ("_value", "json", "seq")

    seq: int
    json: bytes

    def __init__(self, seq: int, json: bytes) -> None:
        object.__setattr__(self, "seq", seq)
        object.__setattr__(self, "json", json)

    @property
    def value(self) -> Any:
        """The message as dicts and lists; changing them raises TypeError."""
        try:
            return object.__getattribute__(self, "_value")
        except AttributeError:
            object.__setattr__(self, "_value", freeze(read(self.json)))
            return object.__getattribute__(self, "_value")

    def __setattr__(self, name: str, value: object) -> NoReturn:
        raise AttributeError(f"{name} cannot be set: a derived message is shared")

    def __delattr__(self, name: str) -> NoReturn:
        raise AttributeError(f"{name} cannot be deleted: a derived message is shared")

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Message) and (self.seq, self.json) == (other.seq, other.json)

    def __hash__(self) -> int:
        return hash((self.seq, self.json))

    def __repr__(self) -> str:
        return f"Message({self.seq}, {self.json!r})"


class MessageCache:
    """The messages of a surface. Extends while its content generation stays, else starts from scratch.
    `derive` gives a node's message from its event, or None."""

    __slots__ = ("_derive", "_generation", "_held", "_last", "_messages")

    def __init__(self, derive: Callable[[Node], bytes | None]) -> None:
        self._derive = derive
        self._generation = -1
        self._held = 0
        self._last = -1
        self._messages: tuple[Message, ...] = ()

    def messages(self, surface: Surface) -> tuple[Message, ...]:
        """The messages of the surface as it is now; the same objects as before for what stayed."""
        entries = surface.entries
        if self._generation != surface.content_generation or not self._extends(entries):
            self._generation, self._held, self._messages = surface.content_generation, 0, ()
        if self._held < len(entries):
            found = []
            for node in entries[self._held :]:
                message = self._derive(node)
                if message is not None:
                    found.append(Message(node.seq, message))
            self._messages += tuple(found)
            self._held = len(entries)
            self._last = entries[-1].seq
        return self._messages

    def _extends(self, entries: Any) -> bool:
        """False when appended nodes were taken back, which leaves the generation as it was."""
        return self._held == 0 or (self._held <= len(entries) and entries[self._held - 1].seq == self._last)
