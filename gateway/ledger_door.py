"""What stands between a `Ledger` and the ledger itself: the same few calls, in this process or over HTTP."""

from collections.abc import AsyncIterator, Mapping, Sequence
from typing import Literal, Protocol

from producer.append import Appended, IdempotencyKey
from producer.claims import Claimed
from producer.forking import Forked
from producer.resuming import Resumed
from surfacelog.events import Draft

__all__ = ["Ack", "Door", "What"]

Ack = Literal["accepted", "logged"]
What = Literal["messages", "head", "session", "surface", "transcript", "events"]


class Door(Protocol):
    """Every call raises LedgerError and nothing else; `read` and `create` answer the JSON of docs/http.md."""

    async def create(self, opening: Mapping[str, object]) -> bytes:
        """Makes a session; `opening` as in a create request."""
        ...

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
        ...

    async def claim(self, session: str, owner: str, *, takeover: bool, lease_ms: int) -> Claimed:
        """Takes the session for `owner`."""
        ...

    async def release(self, session: str, fence: str) -> None:
        """Gives a claim up."""
        ...

    async def delete(self, session: str) -> None:
        """Ends a session."""
        ...

    async def fork(self, session: str, opening: Mapping[str, object], boundary: int) -> Forked:
        """Makes a session that goes on from `session`'s event `boundary`."""
        ...

    async def resume(self, session: str, owner: str, *, takeover: bool, lease_ms: int) -> Resumed:
        """Claims a session and closes what was left open."""
        ...

    async def read(self, session: str, what: What, query: Mapping[str, str | int]) -> bytes:
        """One read, with the parameters of its route."""
        ...

    def tail(self, session: str, first: int | None) -> AsyncIterator[bytes]:
        """Server-sent events from seq `first` on, None for only what is new; in pieces of any length."""
        ...

    async def close(self) -> None:
        """Lets go of all that was opened."""
        ...
