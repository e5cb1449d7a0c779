"""One caller's wish on its way through a session's writer, and the answer that its caller waits for.

A request is answered exactly once. What its deadline says depends on whether a record of it was handed to the log.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Protocol

import msgspec

from producer.deadlines import Deadlines
from surfacelog.errors import ProtocolError
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.token import Token
from surfacelog.verdict import Verdict

__all__ = ["Asks", "Intent", "Landed", "Request", "unknown_outcome"]


class Landed(msgspec.Struct, frozen=True):
    """`verdict` says where the request stands in the history. `commit_id`: of the record that was sent, or of the
    earlier one that an idempotent repeat found. `open_id`, `version`: what a token is made of."""

    verdict: Verdict
    commit_id: str
    open_id: str
    version: int
    provisional: bool = False

    def token(self, seq: int) -> str:
        """A token of the place `seq`, with which a reader waits for the caller's own write."""
        return Token(self.open_id, self.version, seq).encode()


class Asks(Protocol):
    """Hands an intent to its session's writer and waits for the answer."""

    def __call__(
        self, tenant: str, session: str, intent: "Intent", timeout_ms: int | None, size_bytes: int = ..., /
    ) -> Awaitable[Landed]: ...


class Intent(Protocol):
    """What a request wants to write. Made anew for every attempt, on the state that the one before will leave.
    `certain`: whether it must be made on what is certain, because the log does not check all that it relies on."""

    certain: bool

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The record to write next; raises LedgerError when the state or the request itself forbids it."""
        ...

    def excuse(self, state: SessionState) -> Verdict | None:
        """A verdict that the state already shows for this very request, whatever a refusal says."""
        ...


class Request:
    """`deadline`: of the loop's clock, s. `logged`: answer as soon as the log has the record, provisionally.
    `attempts`: records of it that the log refused. `fresh_offset`: the log's end, read after the request came,
    that a state must have passed before the answer may be no; -1 until it is read. `commit_id`: of the record
    that may be in the log, or empty. `over` is called once, when neither a caller nor a record in flight needs
    it."""

    __slots__ = (
        "_bucket",
        "_over",
        "attempts",
        "commit_id",
        "deadline",
        "fresh_offset",
        "future",
        "in_flight",
        "intent",
        "logged",
        "obstacle",
    )

    def __init__(
        self,
        intent: Intent,
        deadline: float,
        deadlines: Deadlines,
        *,
        logged: bool = False,
        over: Callable[[], None] | None = None,
    ) -> None:
        self.intent = intent
        self.deadline = deadline
        self.logged = logged
        self.attempts = 0
        self.fresh_offset = -1
        self.commit_id = ""
        self.in_flight = False
        self.obstacle = ("overloaded", "work that came earlier took all the time", 100)
        self.future: asyncio.Future[Landed] = asyncio.get_running_loop().create_future()
        self._over = over
        self._bucket = deadlines.watch(self)

    @property
    def open(self) -> bool:
        """Whether there is a reason to write it: a caller waits, or was promised that it is on its way."""
        if not self.future.done():
            return True
        return self.logged and not self.future.cancelled() and self.deadline > asyncio.get_running_loop().time()

    def waits_for(self, code: str, message: str, retry_after_ms: int = 0) -> None:
        """What the caller is told should time run out now."""
        self.obstacle = (code, message, retry_after_ms)

    def resolve(self, landed: Landed) -> None:
        """Answers yes."""
        if not self.future.done():
            self._bucket.pop(self, None)
            self.future.set_result(landed)
        self._settle()

    def landed(self, landed: Landed) -> None:
        """Answers yes: its record counts."""
        self.in_flight = False
        self.resolve(landed)

    def refuse(self, error: Exception) -> None:
        """Answers no."""
        if not self.future.done():
            self._bucket.pop(self, None)
            self.future.set_exception(error)
            self.future.exception()  # The caller may be gone.
        self._settle()

    def sent(self, commit_id: str) -> None:
        """A record of it is handed to the log."""
        self.commit_id = commit_id
        self.in_flight = True

    def landed_or_not(self, *, written: bool) -> None:
        """The fate of its record is known; `written` keeps the id, because the record counts."""
        self.in_flight = False
        if not written:
            self.commit_id = ""
        self._settle()

    def give_up(self) -> None:
        """Nobody waits for the answer any more."""
        self._bucket.pop(self, None)
        self.future.cancel()
        self._settle()

    def _settle(self) -> None:
        if self._over is not None and self.future.done() and not self.in_flight:
            over, self._over = self._over, None
            over()

    def expire(self) -> None:
        """Time is over: the caller is told what stood in the way, or that the outcome is unknown."""
        if self.future.done():
            return
        if self.commit_id:
            self.refuse(unknown_outcome(self.commit_id))
            return
        code, message, retry_after_ms = self.obstacle
        detail = {"retry_after_ms": retry_after_ms} if retry_after_ms else {}
        self.refuse(ProtocolError(code, f"{message}; nothing was written, try again", **detail))


def unknown_outcome(commit_id: str) -> ProtocolError:
    """Sent, and no verdict in time: the caller must not take it for failed."""
    return ProtocolError(
        "unknown-outcome",
        "the append was sent and its verdict did not come in time; repeat the request with the same idempotency "
        "key, or ask for the verdict of this commit",
        commit_id=commit_id,
    )
