"""Live tails: every event of a session from a seq on, as server-sent events, without gap or repeat.

A stream subscribes first and then reads pages by seq, so a lost notification costs one heartbeat and nothing else.
Nothing is read ahead of the reader: a slow one holds one page, never a growing buffer, and one that takes nothing
is dropped (gateway/protocol.py).
"""

import asyncio
from collections.abc import AsyncIterator
from weakref import WeakSet

import msgspec

from gateway.news import News
from gateway.pages import Pages
from gateway.view import View
from producer.cache import CacheUnavailable
from producer.log import Unavailable
from surfacelog.errors import ProtocolError

__all__ = ["Seen", "Streams"]

PAGE_EVENTS = 200
# Refusals that pass by themselves; the stream stays open and tries again.
_PASSING = frozenset({"rebuilding", "unavailable"})


class Seen(msgspec.Struct, frozen=True):
    """What a reader saw last: event `seq` of the session that was opened as `epoch`, empty if it does not say."""

    seq: int
    epoch: str = ""


class _Place:
    """What one open stream takes of the number that may be open."""


class Streams:
    """`streams_max`: how many are open at once; `heartbeat_ms`: how long a quiet stream says nothing."""

    def __init__(self, pages: Pages, news: News, streams_max: int, heartbeat_ms: int) -> None:
        self._pages = pages
        self._news = news
        self._streams_max = streams_max
        self._heartbeat_s = heartbeat_ms / 1000
        self._closing = asyncio.Event()
        # Weak, so that a stream that nobody ever reads gives its place back too.
        self._places: WeakSet[_Place] = WeakSet()

    @property
    def open(self) -> int:
        """How many streams are open, those included that have not said anything yet."""
        return len(self._places)

    async def start(
        self, tenant: str, session: str, first: int | None, seen: Seen | None = None, *, epochs: bool = False
    ) -> AsyncIterator[bytes]:
        """The stream from seq `first` on (None: only what is new), or behind what was `seen`. Who saw what the
        session does not have is told so by one `resync` event, and then what is new. `epochs`: ids are
        `<epoch>:<seq>`. Raises what a read raises, and `overloaded`."""
        if self.open >= self._streams_max:
            raise ProtocolError("overloaded", "as many streams as this server takes are open; try again later")
        place = _Place()
        self._places.add(place)
        try:
            return await self._start(place, tenant, session, first, seen, epochs)
        except BaseException:
            self._places.discard(place)
            raise

    async def _start(
        self, place: "_Place", tenant: str, session: str, first: int | None, seen: Seen | None, epochs: bool
    ) -> AsyncIterator[bytes]:
        found, _ = await self._pages.lines(tenant, session, 0, 0, 0)
        same = seen is None or seen.epoch in ("", found.open_id)
        if seen is not None and same and seen.seq >= found.seq:
            found = await self._pages.settled(tenant, session)
        prefix = b"%s:" % found.open_id.encode() if epochs else b""
        if seen is None:
            following, head = found.seq if first is None else first, b""
        elif same and seen.seq < found.seq:
            following, head = seen.seq + 1, b""
        else:
            following, head = found.seq, _resync(found, prefix)
        return self._run(place, tenant, session, found, following, prefix, head)

    async def _run(
        self, place: "_Place", tenant: str, session: str, found: View, following: int, prefix: bytes, head: bytes
    ) -> AsyncIterator[bytes]:
        try:
            async with self._news.watch(found.partition, found.key) as watch:
                yield b": stream from %d\n\n%s" % (following, head)
                while not self._closing.is_set():
                    lines: list[bytes] = []
                    try:
                        _, lines = await self._pages.lines(tenant, session, following, 2**53, PAGE_EVENTS)
                    except (CacheUnavailable, Unavailable):
                        await asyncio.sleep(min(1.0, self._heartbeat_s))
                    except ProtocolError as refusal:
                        if refusal.code not in _PASSING:
                            yield b'event: end\ndata: {"code":"%s"}\n\n' % refusal.code.encode()
                            return
                        await asyncio.sleep(min(1.0, self._heartbeat_s))
                    if lines:
                        yield b"".join(_frame(prefix, seq, line) for seq, line in enumerate(lines, following))
                        following += len(lines)
                    elif not await watch.wait(self._heartbeat_s):
                        yield b": at %d\n\n" % following
        finally:
            self._places.discard(place)

    def close(self) -> None:
        """Lets streams end at their next heartbeat."""
        self._closing.set()


def _frame(prefix: bytes, seq: int, line: bytes) -> bytes:
    # A carriage return between JSON tokens would end the field; a space means the same to JSON.
    return b"id: %s%d\ndata: %s\n\n" % (prefix, seq, line.replace(b"\r", b" "))


def _resync(found: View, prefix: bytes) -> bytes:
    # Its own id replaces the one that led here, so that a client that connects again by itself is not told twice.
    name = b"%s%d" % (prefix, found.seq - 1) if found.seq else b""
    told = msgspec.json.encode({"epoch": found.open_id, "seq": found.seq})
    return b"event: resync\nid: %s\ndata: %s\n\n" % (name, told)
