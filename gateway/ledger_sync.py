"""The Python API for scripts: the same ledger without `await`, on an event loop of its own in a thread.

with SyncLedger.connect() as ledger:
    session = ledger.open("id")
    session.append("user/message", {...}, surface_op="append")
"""

import asyncio
import threading
from collections.abc import AsyncIterator, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

from gateway.ledger import Ledger, Target
from gateway.ledger_answers import EventView, Head
from gateway.ledger_door import Ack
from gateway.ledger_session import LedgerSession
from gateway.tenant import LOCAL_TENANT
from producer.append import Appended
from producer.claims import Claimed
from producer.limits import AppendLimits
from producer.resuming import Resumed
from surfacelog.events import Draft

__all__ = ["SyncLedger", "SyncSession"]

Answer = TypeVar("Answer")


class _Loop:
    """An event loop in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="surfacelog", daemon=True)
        self._thread.start()

    def run(self, work: Coroutine[Any, Any, Answer]) -> Answer:
        """Waits for `work`; an interrupt cancels it."""
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result()
        except BaseException:
            future.cancel()
            raise

    def iterate(self, items: AsyncIterator[Answer]) -> Iterator[Answer]:
        """The items, each fetched when it is asked for."""

        async def following() -> tuple[bool, Any]:
            try:
                return True, await anext(items)
            except StopAsyncIteration:
                return False, None

        while True:
            more, item = self.run(following())
            if not more:
                return
            yield item

    def stop(self) -> None:
        """Ends the thread."""
        self.run(_settle())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


async def _settle() -> None:
    """Ends what is still running, and closes half-read iterations."""
    here = asyncio.current_task()
    left = [task for task in asyncio.all_tasks() if task is not here]
    for task in left:
        task.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    await asyncio.get_running_loop().shutdown_asyncgens()


class SyncLedger:
    """See `Ledger`; every method does the same and waits for it. May be used by several threads."""

    def __init__(self, loop: _Loop, ledger: Ledger) -> None:
        self._loop = loop
        self._ledger = ledger

    @classmethod
    @contextmanager
    def connect(
        cls,
        target: Target = None,
        *,
        api_key: str | None = None,
        tenant: str = LOCAL_TENANT,
        limits: AppendLimits | None = None,
        patience_s: float = 30.0,
        keys: bool = True,
    ) -> Iterator["SyncLedger"]:
        """See `Ledger.connect`; to be used in `with`."""
        loop = _Loop()
        connecting = Ledger.connect(
            target, api_key=api_key, tenant=tenant, limits=limits, patience_s=patience_s, keys=keys
        )
        try:
            ledger = loop.run(connecting.__aenter__())
            try:
                yield cls(loop, ledger)
            finally:
                loop.run(ledger.close())
        finally:
            loop.stop()

    def open(self, session: str, **header: object) -> "SyncSession":
        """The session of this id, made if there is none."""
        return SyncSession(self._loop, self._loop.run(self._ledger.open(session, **header)))

    def create(self, session: str | None = None, **header: object) -> "SyncSession":
        """A new session."""
        return SyncSession(self._loop, self._loop.run(self._ledger.create(session, **header)))

    def session(self, session: str) -> "SyncSession":
        """A handle on a session, without asking whether there is one."""
        return SyncSession(self._loop, self._ledger.session(session))


class SyncSession:
    """See `LedgerSession`."""

    def __init__(self, loop: _Loop, session: LedgerSession) -> None:
        self._loop = loop
        self._session = session

    @property
    def id(self) -> str:
        """The session's id."""
        return self._session.id

    @property
    def seq(self) -> int:
        """How many events the session is known to have."""
        return self._session.seq

    @property
    def claimed(self) -> Claimed | None:
        """The claim that this handle holds."""
        return self._session.claimed

    def append(
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
        """Appends one event."""
        return self._loop.run(
            self._session.append(
                kind,
                data,
                surface_op=surface_op,
                source_event_seqs=source_event_seqs,
                ignorable=ignorable,
                time=time,
                expected_seq=expected_seq,
                key=key,
                ack=ack,
                timeout_ms=timeout_ms,
            )
        )

    def append_many(
        self,
        drafts: Sequence[Draft],
        *,
        expected_seq: int | None = None,
        key: str | None = None,
        ack: Ack = "accepted",
        timeout_ms: int | None = None,
    ) -> Appended:
        """Appends all events or none."""
        return self._loop.run(
            self._session.append_many(drafts, expected_seq=expected_seq, key=key, ack=ack, timeout_ms=timeout_ms)
        )

    def messages(self) -> list[Any]:
        """What the model should see next."""
        return self._loop.run(self._session.messages())

    def transcript(self) -> list[EventView]:
        """What a person saw."""
        return self._loop.run(self._session.transcript())

    def events(self, start: int = 0, stop: int | None = None) -> Iterator[EventView]:
        """All events from seq `start` to before `stop`."""
        return self._loop.iterate(self._session.events(start, stop))

    def tail(self, start: int | None = None) -> Iterator[EventView]:
        """Events as they come, without end."""
        return self._loop.iterate(self._session.tail(start))

    def surface(self) -> list[int]:
        """The seqs of the events that the model sees."""
        return self._loop.run(self._session.surface())

    def head(self) -> Head:
        """Where the session stands."""
        return self._loop.run(self._session.head())

    def claim(self, owner: str, *, takeover: bool = False, lease_ms: int = 0) -> Claimed:
        """Takes the session."""
        return self._loop.run(self._session.claim(owner, takeover=takeover, lease_ms=lease_ms))

    def release(self) -> None:
        """Gives the claim up."""
        self._loop.run(self._session.release())

    def resume(self, owner: str, *, takeover: bool = False, lease_ms: int = 0) -> Resumed:
        """Claims the session and closes what an earlier run left open."""
        return self._loop.run(self._session.resume(owner, takeover=takeover, lease_ms=lease_ms))

    def fork(self, boundary: int, child: str | None = None, **header: object) -> "SyncSession":
        """A new session that goes on from the event `boundary` of this one."""
        return SyncSession(self._loop, self._loop.run(self._session.fork(boundary, child, **header)))

    def delete(self) -> None:
        """Ends the session for good."""
        self._loop.run(self._session.delete())
