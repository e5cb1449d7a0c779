"""The ledger in this process: straight to the producer and the reads, over Kafka and Redis or the embedded
servers."""

import time
from collections.abc import AsyncIterator, Awaitable, Mapping, Sequence
from contextlib import AsyncExitStack
from typing import Any, TypeVar

import msgspec

from gateway.backend import backend
from gateway.bodies import Opening
from gateway.ledger_door import Ack, What
from gateway.openings import header_of
from gateway.services import Services, services_for
from gateway.settings import GatewaySettings
from producer.append import Appended, IdempotencyKey
from producer.cache import CacheUnavailable
from producer.claims import Claimed
from producer.forking import Forked
from producer.limits import AppendLimits
from producer.log import ProduceUnknown, Unavailable
from producer.resuming import Resumed
from producer.settings import ServerSettings
from surfacelog.errors import ProtocolError
from surfacelog.events import Draft

__all__ = ["DirectDoor"]

Answer = TypeVar("Answer")
PAGE_EVENTS = 1000


class DirectDoor:
    """Serves one tenant. `own`: what was opened for it, closed with it."""

    def __init__(self, services: Services, tenant: str, own: AsyncExitStack | None = None) -> None:
        self._services = services
        self._tenant = tenant
        self._own = own or AsyncExitStack()

    @classmethod
    async def open(cls, servers: ServerSettings, tenant: str, limits: AppendLimits | None = None) -> "DirectDoor":
        """Opens log, cache and producer, and for the embedded mode the projector; raises `misconfigured` or
        `unavailable`."""
        async with AsyncExitStack() as stack:
            parts = await _plain(stack.enter_async_context(backend(servers, limits)))
            services = services_for(
                GatewaySettings(),
                parts.log,
                parts.cache,
                parts.producer,
                now_ms=lambda: time.time_ns() // 1_000_000,
            )
            stack.push_async_callback(services.close)
            return cls(services, tenant, stack.pop_all())
        raise AssertionError("an exit stack swallows nothing")

    async def create(self, opening: Mapping[str, object]) -> bytes:
        """Makes a session."""
        wish = _opening(opening)
        header = header_of(wish, self._services.now_ms())
        made = await _plain(self._services.producer.create(self._tenant, header, open_id=wish.open_id))
        return msgspec.json.encode({"id": header.id, "seq": made.next_seq, "token": made.token})

    async def append(
        self,
        session: str,
        drafts: Sequence[Draft],
        *,
        expected_seq: int | None,
        key: IdempotencyKey | None,
        fence: str | None,
        ack: Ack,
        timeout_ms: int | None,
    ) -> Appended:
        """Appends all drafts or none."""
        return await _plain(
            self._services.producer.append(
                self._tenant,
                session,
                drafts,
                expected_seq=expected_seq,
                key=key,
                fence=fence,
                ack=ack,
                timeout_ms=timeout_ms,
            )
        )

    async def claim(self, session: str, owner: str, *, takeover: bool, lease_ms: int) -> Claimed:
        """Takes the session for `owner`."""
        return await _plain(
            self._services.producer.claim(self._tenant, session, owner, takeover=takeover, lease_ms=lease_ms)
        )

    async def release(self, session: str, fence: str) -> None:
        """Gives a claim up."""
        await _plain(self._services.producer.release(self._tenant, session, fence))

    async def delete(self, session: str) -> None:
        """Ends a session."""
        await _plain(self._services.producer.delete(self._tenant, session))

    async def fork(self, session: str, opening: Mapping[str, object], boundary: int) -> Forked:
        """Makes a session that goes on from `session`'s event `boundary`."""
        wish = _opening(opening)
        header = header_of(wish, self._services.now_ms())
        return await _plain(
            self._services.producer.fork(self._tenant, session, header, boundary, open_id=wish.open_id)
        )

    async def resume(self, session: str, owner: str, *, takeover: bool, lease_ms: int) -> Resumed:
        """Claims a session and closes what was left open."""
        return await _plain(
            self._services.producer.resume(self._tenant, session, owner, takeover=takeover, lease_ms=lease_ms)
        )

    async def read(self, session: str, what: What, query: Mapping[str, str | int]) -> bytes:
        """One read."""
        asked: dict[str, Any] = {"min_seq": query.get("min_seq", -1)}
        if "wait_ms" in query:
            asked["wait_ms"] = query["wait_ms"]
        reads, pages = self._services.reads, self._services.pages
        if what == "messages":
            after = query.get("after")
            found = reads.messages(self._tenant, session, after=None if after is None else str(after), **asked)
        elif what in ("events", "transcript"):
            page = pages.events if what == "events" else pages.transcript
            start, stop = int(query.get("from", 0)), int(query.get("to", 2**53))
            found = page(self._tenant, session, start, stop, int(query.get("limit", PAGE_EVENTS)), **asked)
        else:
            found = getattr(reads, what)(self._tenant, session, **asked)
        return (await _plain(found)).body

    async def tail(self, session: str, first: int | None) -> AsyncIterator[bytes]:
        """Server-sent events from seq `first` on."""
        frames = await _plain(self._services.streams.start(self._tenant, session, first))
        async for frame in frames:
            yield frame

    async def close(self) -> None:
        """Lets go of all that was opened."""
        await self._own.aclose()


def _opening(fields: Mapping[str, object]) -> Opening:
    try:
        return msgspec.convert(fields, Opening)
    except msgspec.ValidationError as error:
        raise ProtocolError("bad-request", f"the session cannot be made as asked: {error}") from None


async def _plain(work: Awaitable[Answer]) -> Answer:
    """What the servers' absence is to a caller: a code like any other."""
    try:
        return await work
    except (Unavailable, CacheUnavailable) as error:
        raise ProtocolError("unavailable", "the log or the cache does not answer; try again") from error
    except ProduceUnknown as error:
        raise ProtocolError("unknown-outcome", "the write may or may not have happened") from error
