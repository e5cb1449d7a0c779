"""What the reads of a `Ledger` answer, typed."""

from collections.abc import Callable
from typing import Any, TypeVar

import msgspec
from msgspec import Raw, UnsetType

from surfacelog.errors import ContractError, ProtocolError
from surfacelog.events import Event, decode_event, read_data
from surfacelog.lossless import DEPTH_MAX, elements, members, read_again

__all__ = ["EventView", "Head", "Holder", "Messages", "Page", "read_answer", "view_of"]

Answer = TypeVar("Answer")
# The answer's own containers come on top of those of an event and of its data.
_DEPTH_MAX = DEPTH_MAX + 3


class EventView(msgspec.Struct, frozen=True):
    """An event as it is stored; `raw` are the bytes of its data, `data` the same decoded."""

    type: str
    seq: int
    time: int
    raw: bytes
    ignorable: bool = False
    surface_op: Any = None
    source_event_seqs: list[int] | None = None

    @property
    def data(self) -> Any:
        """The data, decoded anew each time, so that nobody changes another's."""
        return read_data(self.raw)


class Holder(msgspec.Struct, frozen=True, rename="camel"):
    """Who holds a session. `time` (ms) + `lease_ms` is when others may think that the owner is dead."""

    epoch: int
    owner: str
    lease_ms: int = 0
    time: int = 0


class Head(msgspec.Struct, frozen=True, rename="camel"):
    """Where a session stands. `seq`: how many events it has. `chain`: hex. `generation` grows whenever earlier
    messages change. `rejected`: records that the ledger refused, by code."""

    id: str
    status: str
    seq: int
    generation: int
    replace_generation: int
    chain: str
    claim: Holder | None
    nodes: int
    messages: int
    transcript: int
    accepted: int
    rejected: dict[str, int]
    token: str
    forking: bool = False


class Messages(msgspec.Struct, frozen=True, rename="camel"):
    """A read of messages, each as the JSON bytes that are served. `rebuilt`: they are all, not only the new
    ones."""

    seq: int = -1
    generation: int = -1
    token: str = ""
    rebuilt: bool = False
    messages: list[Raw] = []


class Page(msgspec.Struct, frozen=True, rename="camel"):
    """A page of events, or of the surface's seqs. `next`: where the next page begins, None at the end."""

    seq: int
    generation: int
    events: list[Event] = []
    nodes: list[int] = []
    next: int | None = None


def view_of(event: Event) -> EventView:
    """An event as readers of the Python API see it."""
    return EventView(
        event.type,
        event.seq,
        event.time,
        bytes(event.data),
        event.ignorable is True,
        None if isinstance(event.surface_op, UnsetType) else read_data(event.surface_op),
        None if isinstance(event.source_event_seqs, UnsetType) else read_data(event.source_event_seqs),
    )


def read_answer(body: bytes, kind: type[Answer]) -> Answer:
    """The answer in these bytes; raises `unavailable` for what no ledger says."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Also what msgspec does not read and the contract takes, as lone surrogate escapes.
        return _carefully(body, kind)


def _carefully(body: bytes, kind: type[Answer]) -> Answer:
    try:
        parts = members(body, _DEPTH_MAX) or {}
        bodies = {name: elements(parts.pop(name), _DEPTH_MAX) for name in ("events", "messages") if name in parts}
        answer = msgspec.convert({name: read_again(raw) for name, raw in parts.items()}, kind)
        read: dict[str, Callable[[bytes], object]] = {"events": decode_event, "messages": Raw}
        lists = {name: [read[name](raw) for raw in raws or ()] for name, raws in bodies.items()}
        return msgspec.structs.replace(answer, **lists) if lists else answer  # type: ignore[type-var]
    except (ContractError, msgspec.MsgspecError, ValueError) as error:
        raise ProtocolError("unavailable", f"the answer cannot be read ({error})") from None
