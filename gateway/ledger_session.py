"""One session of a `Ledger`: what an agent appends, and what its model should see next."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import UNSET, Raw

from gateway.ledger_answers import EventView, Head, Messages, Page, read_answer, view_of
from gateway.ledger_door import Ack, Door, What
from producer.append import Appended, IdempotencyKey
from producer.claims import Claimed
from producer.ids import mint_id
from producer.resuming import Resumed
from surfacelog.errors import LedgerError, ProtocolError
from surfacelog.events import Draft, decode_event, read_data

__all__ = ["LedgerSession", "event"]

Answer = TypeVar("Answer")
# What passes by itself. An append is repeated only with its key, so that it lands once.
PASSING = frozenset({"overloaded", "rebuilding", "locked", "unavailable", "unknown-outcome", "forking"})
PAUSE_S = 0.05
PAUSE_MAX_S = 2.0
PAGE_EVENTS = 1000


def event(
    kind: str,
    data: Any,
    *,
    surface_op: Any = None,
    source_event_seqs: Sequence[int] | None = None,
    ignorable: bool = False,
    time: int | None = None,
) -> Draft:
    """An event to append. `data`: anything that JSON can hold, or `msgspec.Raw` bytes of JSON, kept as they are.
    `surface_op`: "append" or a replace, for the types that the model sees. `time`: ms, by default the ledger's.
    Raises `bad-request` for what JSON cannot hold."""
    return Draft(
        kind,
        _json(data),
        UNSET if time is None else time,
        True if ignorable else UNSET,
        UNSET if surface_op is None else _json(surface_op),
        UNSET if source_event_seqs is None else _json(list(source_event_seqs)),
    )


def _json(value: Any) -> Raw:
    if isinstance(value, Raw):
        return value
    try:
        return Raw(msgspec.json.encode(value))
    except (TypeError, ValueError, RecursionError) as error:
        raise ProtocolError("bad-request", f"this is no JSON: {error}") from None


class LedgerSession:
    """`seq`: how many events the session is known to have. Reads never show less than this handle has seen, its
    own appends included. While it holds a claim, its appends carry it."""

    def __init__(self, door: Door, session: str, *, patience_s: float, keys: bool) -> None:
        self.id = session
        self.seq = 0
        self.claimed: Claimed | None = None
        self._door = door
        self._patience_s = patience_s
        self._keys = keys
        self._messages = Messages()

    def saw(self, seq: int) -> None:
        """Somebody saw that the session has `seq` events."""
        self.seq = max(self.seq, seq)

    async def append(
        self,
        kind: str,
        data: Any,
        *,
        surface_op: Any = None,
        source_event_seqs: Sequence[int] | None = None,
        ignorable: bool = False,
        time: int | None = None,
        expected_seq: int | None = None,
        key: str | None = None,
        ack: Ack = "accepted",
        timeout_ms: int | None = None,
    ) -> Appended:
        """Appends one event; see `event` for what describes it, and `append_many` for the rest."""
        draft = event(
            kind,
            data,
            surface_op=surface_op,
            source_event_seqs=source_event_seqs,
            ignorable=ignorable,
            time=time,
        )
        return await self.append_many([draft], expected_seq=expected_seq, key=key, ack=ack, timeout_ms=timeout_ms)

    async def append_many(
        self,
        drafts: Sequence[Draft],
        *,
        expected_seq: int | None = None,
        key: str | None = None,
        ack: Ack = "accepted",
        timeout_ms: int | None = None,
    ) -> Appended:
        """Appends all events or none. `expected_seq`: the seq that the first must get, else `seq-conflict` with
        the present head. `key`: your own idempotency key, for repeats across processes. `ack="logged"`: answered
        when the log has it, provisionally. Raises the contract's code for an event that breaks a rule."""
        known = IdempotencyKey(key or mint_id(), self.seq) if key or self._keys else None

        def work() -> Awaitable[Appended]:
            return self._door.append(
                self.id,
                drafts,
                expected_seq=expected_seq,
                key=known,
                fence=self.claimed.fence if self.claimed else None,
                ack=ack,
                timeout_ms=timeout_ms,
            )

        done = await (self._patiently(work) if known is not None else work())
        self.saw(done.next_seq)
        return done

    async def messages(self) -> list[Any]:
        """What the model should see next, decoded. Only what is new is transferred; the list is the caller's
        own."""
        query = self._not_older()
        if self._messages.token:
            query["after"] = self._messages.token
        found = await self._read("messages", query, Messages)
        if not found.rebuilt and self._messages.token:
            found = msgspec.structs.replace(found, messages=[*self._messages.messages, *found.messages])
        # Answers to reads at the same time may come in any order.
        if found.seq >= self._messages.seq:
            self._messages = found
        self.saw(found.seq)
        return [read_data(message) for message in found.messages]

    async def transcript(self) -> list[EventView]:
        """What a person saw: the events that were appended to the surface, replaced or not."""
        return [seen async for seen in self._pages("transcript", 0, None)]

    def events(self, start: int = 0, stop: int | None = None) -> AsyncIterator[EventView]:
        """All events from seq `start` to before `stop`, page by page."""
        return self._pages("events", start, stop)

    async def surface(self) -> list[int]:
        """The seqs of the events that the model sees, in its order."""
        return (await self._read("surface", self._not_older(), Page)).nodes

    async def head(self) -> Head:
        """Where the session stands. Raises `no-session`, `gone`."""
        found = await self._read("head", self._not_older(), Head)
        self.saw(found.seq)
        return found

    async def claim(self, owner: str, *, takeover: bool = False, lease_ms: int = 0) -> Claimed:
        """Takes the session: until it is released or taken over, only appends of this handle pass."""
        self.claimed = await self._door.claim(self.id, owner, takeover=takeover, lease_ms=lease_ms)
        self.saw(self.claimed.next_seq)
        return self.claimed

    async def release(self) -> None:
        """Gives the claim up. Raises `fenced` when it was taken over."""
        held, self.claimed = self.claimed, None
        if held is not None:
            fence = held.fence
            await self._patiently(lambda: self._door.release(self.id, fence))

    async def resume(self, owner: str, *, takeover: bool = False, lease_ms: int = 0) -> Resumed:
        """Claims the session and closes what an earlier run left open: its calls, step and turn."""
        done = await self._door.resume(self.id, owner, takeover=takeover, lease_ms=lease_ms)
        self.claimed = done.claim
        self.saw(done.next_seq)
        return done

    async def fork(self, boundary: int, child: str | None = None, **header: object) -> "LedgerSession":
        """A new session that goes on from the event `boundary` of this one; its rules are this one's."""
        name = child or mint_id()
        opening = {**header, "id": name, "openId": mint_id()}
        made = await self._patiently(lambda: self._door.fork(self.id, opening, boundary))
        found = LedgerSession(self._door, name, patience_s=self._patience_s, keys=self._keys)
        found.saw(made.next_seq)
        return found

    async def delete(self) -> None:
        """Ends the session for good."""
        await self._door.delete(self.id)

    async def tail(self, start: int | None = None) -> AsyncIterator[EventView]:
        """Events as they come, from seq `start` on (by default from what this handle has seen). Goes on by itself
        after a lost connection, without gap or repeat."""
        following = self.seq if start is None else start
        while True:
            left = b""
            try:
                async for piece in self._door.tail(self.id, following):
                    *frames, left = (left + piece).split(b"\n\n")
                    for frame in frames:
                        seen = _event_of(frame)
                        if seen is not None and seen.seq >= following:
                            following = seen.seq + 1
                            yield seen
            except ProtocolError as error:
                if error.code not in PASSING:
                    raise
            await asyncio.sleep(PAUSE_S)

    async def _pages(self, what: What, start: int, stop: int | None) -> AsyncIterator[EventView]:
        at: int | None = start
        while at is not None:
            query = self._not_older() | {"from": at, "limit": PAGE_EVENTS}
            if stop is not None:
                query["to"] = stop
            page = await self._read(what, query, Page)
            for found in page.events:
                yield view_of(found)
            at = page.next

    def _not_older(self) -> dict[str, str | int]:
        """Asks for the newest event that this handle knows of."""
        return {"min_seq": self.seq - 1} if self.seq else {}

    async def _read(self, what: What, query: dict[str, str | int], kind: type[Answer]) -> Answer:
        return read_answer(await self._patiently(lambda: self._door.read(self.id, what, query)), kind)

    async def _patiently(self, work: Callable[[], Awaitable[Answer]]) -> Answer:
        """Repeats what may be repeated, less and less often, for as long as the ledger's patience lasts."""
        loop = asyncio.get_running_loop()
        until = loop.time() + self._patience_s
        pause_s = PAUSE_S
        while True:
            try:
                return await work()
            except LedgerError as error:
                wait_s = max(pause_s, float(error.detail.get("retry_after_ms", 0)) / 1000)
                if error.code not in PASSING or loop.time() + wait_s >= until:
                    raise
                await asyncio.sleep(wait_s)
                pause_s = min(pause_s * 2, PAUSE_MAX_S)


def _event_of(frame: bytes) -> EventView | None:
    for line in frame.split(b"\n"):
        if line.startswith(b"event: end"):
            raise ProtocolError("gone", "the live tail ended: the session is not there any more")
        if line.startswith(b"data: "):
            return view_of(decode_event(line[6:]))
    return None
