"""Request bodies: read up to a limit, never beyond, and told apart by their shape.

`data` stays the bytes that were sent. Nothing here knows a rule of the contract.
"""

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from surfacelog.accept import EVENTS_MAX
from surfacelog.errors import ContractError, ProtocolError
from surfacelog.events import Draft, read_draft
from surfacelog.lossless import DEPTH_MAX, elements, members

__all__ = [
    "Append",
    "BodyReader",
    "ClaimWish",
    "Opening",
    "read_append",
    "read_body",
    "read_claim_wish",
    "read_opening",
]


DRAINED_BYTES_MAX = 64 * 1024 * 1024
DRAIN_S = 15.0
# A sender that pauses for longer, or drips, holds a connection and gets nothing done.
BODY_PAUSE_S = 20.0
BODY_S = 300.0
# Reading one byte takes up to 0.2 µs, and others wait meanwhile.
SHORT_BYTES_MAX = 262_144

Milliseconds = Annotated[int, Meta(ge=-(2**53), le=2**53)]
# It is part of every token and ETag, so it is short.
Uuid = Annotated[str, Meta(pattern="^[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")]


class Opening(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of a create request; everything may be left out. `open_id`, a UUIDv7 of the client's own,
    makes repeating the request harmless; `created_at` (ms) is for imports."""

    id: str | None = None
    open_id: Uuid | None = None
    contract: Literal["v4", "v0"] = "v4"
    checks: Literal["surface", "paired"] = "paired"
    vocabulary: tuple[str, ...] = ()
    title: str | None = None
    cwd: str | None = None
    created_at: Milliseconds | None = None
    parent_session: str | None = None
    is_seeded: bool | None = None
    origin: str | None = None
    delegation_depth: Annotated[int, Meta(ge=0, le=2**31)] | None = None
    agent_preset: str | None = None


class ClaimWish(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The body of a claim request. `lease_ms` is advice for others who look at the session."""

    owner: str
    takeover: bool = False
    lease_ms: int = 0


class Append(msgspec.Struct, frozen=True):
    """What an append body asks for. Settings that the body does not name are None."""

    drafts: list[Draft]
    expected_seq: int | None = None
    ack: str | None = None
    timeout_ms: int | None = None


class _Body(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """One event, or a list of them with settings: whichever `events` says."""

    events: list[Draft] | UnsetType = UNSET
    expected_seq: int | None = None
    ack: Literal["accepted", "logged"] | None = None
    timeout_ms: int | None = None
    type: str | UnsetType = UNSET
    data: Raw | UnsetType = UNSET
    time: int | UnsetType = UNSET
    ignorable: bool | UnsetType = UNSET
    surface_op: Raw | UnsetType = UNSET
    source_event_seqs: Raw | UnsetType = UNSET


_list = msgspec.json.Decoder(list[Draft])
_body = msgspec.json.Decoder(_Body)
_opening = msgspec.json.Decoder(Opening)
_wish = msgspec.json.Decoder(ClaimWish)
# The body's own containers come on top of those of an event and of its data.
_DEPTH_MAX = DEPTH_MAX + 3
_EVENT_FIELDS = ("type", "data", "time", "ignorable", "surface_op", "source_event_seqs")
_SETTINGS = ("expected_seq", "ack", "timeout_ms")


async def read_body(chunks: AsyncIterator[bytes], length: str | None, bytes_max: int) -> bytes:
    """The whole body, or `too-large`, decided by its announced length, else while it is read; nothing beyond
    `bytes_max` is ever kept."""
    announced = int(length) if length is not None and length.isdigit() else 0
    if announced > bytes_max:
        await _drain(chunks, announced)
        raise _too_large(bytes_max)
    parts: list[bytes] = []
    size = 0
    until = asyncio.get_running_loop().time() + BODY_S
    try:
        async with asyncio.timeout(BODY_PAUSE_S) as patience:
            async for chunk in chunks:
                patience.reschedule(min(until, asyncio.get_running_loop().time() + BODY_PAUSE_S))
                size += len(chunk)
                if size > bytes_max:
                    parts.clear()
                    break
                parts.append(chunk)
    except TimeoutError:
        raise ProtocolError("bad-request", "the body did not come in time; send it at once") from None
    if size > bytes_max:
        await _drain(chunks, size)
        raise _too_large(bytes_max)
    return b"".join(parts)


async def _drain(chunks: AsyncIterator[bytes], size: int) -> None:
    """Reads a body of moderate size to its end without keeping it: a client that is still sending when the
    connection closes often loses the answer. What is larger is cut off."""
    if size > DRAINED_BYTES_MAX:
        return
    try:
        async with asyncio.timeout(DRAIN_S):
            async for chunk in chunks:
                size += len(chunk)
                if size > DRAINED_BYTES_MAX:
                    return
    except TimeoutError:
        return


def _too_large(bytes_max: int) -> ProtocolError:
    return ProtocolError(
        "too-large", f"a body has at most {bytes_max} bytes; append fewer events at once", size_bytes_max=bytes_max
    )


def _unreadable(error: Exception) -> ProtocolError:
    return ProtocolError("bad-request", f"the body cannot be read: {error}")


class BodyReader:
    """Reads append bodies, the long ones beside the event loop: at most one of them at a time, since two threads
    would only make everybody else wait longer."""

    def __init__(self) -> None:
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="bodies")

    async def read(self, body: bytes) -> Append:
        """What `read_append` answers."""
        if len(body) <= SHORT_BYTES_MAX:
            return read_append(body)
        return await asyncio.get_running_loop().run_in_executor(self._thread, read_append, body)

    def close(self) -> None:
        """Ends the thread after the body in hand."""
        self._thread.shutdown(wait=False, cancel_futures=True)


def read_append(body: bytes) -> Append:
    """The events of an append request: one event, an array of them, or `{"events": […], …settings}`. Raises
    `bad-request`, or ContractError for an event that no session takes."""
    try:
        if body.lstrip()[:1] == b"[":
            return Append(_list.decode(body))
        found = _body.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        # Also what msgspec does not read and the contract takes, as lone surrogate escapes.
        return _read_carefully(body)
    if isinstance(found.events, UnsetType):
        return Append([_single(found)])
    if any(getattr(found, name) is not UNSET for name in _EVENT_FIELDS):
        raise ProtocolError("bad-request", "send either one event or `events`, not both")
    return Append(found.events, found.expected_seq, found.ack, found.timeout_ms)


def _single(found: _Body) -> Draft:
    if any(getattr(found, name) is not None for name in _SETTINGS):
        raise ProtocolError("bad-request", "beside one event no settings may stand; put them in the query")
    if isinstance(found.type, UnsetType) or isinstance(found.data, UnsetType):
        raise ProtocolError("bad-request", "an event has `type` and `data`")
    return Draft(found.type, found.data, found.time, found.ignorable, found.surface_op, found.source_event_seqs)


def _read_carefully(body: bytes) -> Append:
    try:
        if body.lstrip()[:1] == b"[":
            return Append(_drafts(elements(body, _DEPTH_MAX) or []))
        found = members(body, _DEPTH_MAX)
        if found is None:
            raise ProtocolError(
                "bad-request", "a body is an event, an array of events, or an object with `events`"
            )
        if "events" not in found:
            return Append([read_draft(body)])
        drafts = elements(found.pop("events"), _DEPTH_MAX)
        if drafts is None:
            raise ProtocolError("bad-request", "`events` is an array")
        # Of the rest nothing may be as strange as an event is.
        rest = msgspec.json.encode({name: msgspec.Raw(raw) for name, raw in found.items()})
        wish = _body.decode(rest)
        if any(getattr(wish, name) is not UNSET for name in _EVENT_FIELDS):
            raise ProtocolError("bad-request", "send either one event or `events`, not both")
        return Append(_drafts(drafts), wish.expected_seq, wish.ack, wish.timeout_ms)
    except ContractError as error:
        raise _unreadable(error) if error.code == "json-invalid" else error from None
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(error) from None


def _drafts(events: list[bytes]) -> list[Draft]:
    if len(events) > EVENTS_MAX:
        raise ProtocolError("bad-request", f"an append has 1 to {EVENTS_MAX} events", events=len(events))
    return [read_draft(event) for event in events]


def read_opening(body: bytes) -> Opening:
    """A create request; an empty body asks for a session with a new id."""
    try:
        return _opening.decode(body) if body.strip() else Opening()
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(error) from None


def read_claim_wish(body: bytes) -> ClaimWish:
    """A claim request."""
    try:
        return _wish.decode(body)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise _unreadable(error) from None
