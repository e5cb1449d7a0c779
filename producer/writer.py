"""One session's writer in one process: its queue, the state to validate the next request on, what is in flight.

`accept` decides everything; here is only when to ask it, on which state, and when a no may be told.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable

from producer.cache import CacheUnavailable
from producer.commits import Commit
from producer.engine import Engine
from producer.flight import Flight
from producer.lock import SessionLock
from producer.log import OVERHEAD_BYTES_MAX, Unavailable, check_size
from producer.refusals import FINAL_CODES, STANDING_CODES, refusal
from producer.requests import Landed, Request
from producer.sight import Seen
from surfacelog.accept import preview
from surfacelog.errors import ContractError, LedgerError, ProtocolError
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["SessionWriter"]

# Many that wait for one lock must not keep the cache busy with asking.
LOCK_RETRY_MS_MAX = 80
_log = logging.getLogger("surfacelog.producer")


class SessionWriter:
    """`idle` is called when nothing is left to do; the state is kept then, because the next append may come
    soon."""

    def __init__(self, engine: Engine, session_key: bytes, idle: Callable[["SessionWriter"], None]) -> None:
        self.key = session_key
        self._engine = engine
        self._partition = engine.sight.partition(session_key)
        self._lag = engine.lags[self._partition]
        self._lock = SessionLock(
            engine.cache, engine.sight.wanted_channel(session_key), session_key, engine.limits
        )
        self._queue: deque[Request] = deque()
        self._flight = Flight(engine, session_key, self._moved)
        self._state: SessionState | None = None
        self._seen_next = -1
        self._ordinal = 0
        self._changed = asyncio.Event()
        self._free = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._idle = idle
        self._yielding = False
        self._yield_until = 0.0
        self._lock_pause_ms = engine.limits.lock_retry_ms
        self._active_at = 0.0

    @property
    def busy(self) -> bool:
        """Whether it may not be dropped."""
        return self._task is not None or bool(self._queue) or not self._flight.idle

    @property
    def weight(self) -> int:
        """How many surface nodes its state holds in memory."""
        return 0 if self._state is None else len(self._state.surface.entries)

    def submit(self, request: Request) -> None:
        """Queues a request. While the lock is held and nothing stands in the way it is sent at once."""
        self._queue.append(request)
        self._active_at = asyncio.get_running_loop().time()
        self._pump()
        if self._queue:
            self._wake()

    def hear_free(self) -> None:
        """The session's lock was given up for those who wait."""
        self._free.set()

    def hear_wanted(self) -> None:
        """Somebody waits for the session's lock."""
        self._lock.hear()
        if self._task is not None:
            self._changed.set()

    def _moved(self) -> None:
        self._active_at = asyncio.get_running_loop().time()
        if self._queue:
            self._pump()
        if self._queue or self._flight.broken or self._yielding:
            self._wake()

    def _wake(self) -> None:
        self._changed.set()
        if self._task is None:
            self._task = self._engine.spawn(self._run(), "session writer")

    async def _run(self) -> None:
        while True:
            try:
                while self._queue or not self._flight.idle or await self._linger():
                    await self._turn()
                await self._lock.let_go()
            except Exception as error:
                _log.exception("a session's writer failed")
                self._fail(error)
                await self._pause(self._engine.limits.retry_pause_ms)
            if not self._queue and self._flight.idle:
                break
        self._task = None
        self._idle(self)

    def _fail(self, error: Exception) -> None:
        self._state = None
        while self._queue:
            self._queue.popleft().refuse(error)

    async def _linger(self) -> bool:
        """Holds the lock a little longer; whether work came."""
        linger_s = self._engine.limits.lock_linger_ms / 1000
        if not self._lock.held or not linger_s or self._lock.wanted:
            return False
        self._changed.clear()
        try:
            async with asyncio.timeout(linger_s):
                await self._changed.wait()
        except TimeoutError:
            # What came meanwhile was sent past this task.
            return asyncio.get_running_loop().time() - self._active_at < linger_s
        return True

    async def _turn(self) -> None:
        self._changed.clear()
        while self._queue and not self._queue[0].open:
            self._queue.popleft().give_up()
        if self._yielding or self._lock.due:
            await self._yield()
        elif self._flight.broken and len(self._flight):
            await self._wait()
        elif self._flight.broken:
            await self._mend()
        elif self._queue and not self._ready:
            await self._prepare()
        else:
            await self._lock.keep()
            self._pump()
            if self._queue and not len(self._flight) and self._ready and self._queue[0].open:
                await self._refuse_head()
            elif self._queue or not self._flight.idle:
                await self._wait()

    async def _wait(self) -> None:
        """Until something moves, or it is time to look after the lock."""
        try:
            async with asyncio.timeout(self._engine.limits.lock_yield_ms / 1000):
                await self._changed.wait()
        except TimeoutError:
            return

    async def _yield(self) -> None:
        """Gives the lock to whoever waits for it, once nothing is in flight; but others do not wait for long for
        what may never be settled."""
        now = asyncio.get_running_loop().time()
        if not self._yielding:
            self._yielding = True
            self._yield_until = now + self._engine.limits.lock_yield_ms / 1000
        if len(self._flight) and now < self._yield_until:
            await self._wait()
            return
        await self._lock.let_go()
        self._yielding = False
        await self._pause(4 * self._engine.limits.lock_retry_ms)

    @property
    def _ready(self) -> bool:
        return self._state is not None and self._lock.held and not self._flight.stale

    def _pump(self) -> None:
        """Sends what can be sent, in order, without waiting for anything."""
        limit = self._engine.limits.append_in_flight_max
        while self._queue and self._ready and not self._flight.broken and not self._yielding:
            if len(self._flight) >= limit or self._flight.opening:
                return
            request = self._queue[0]
            if not request.open:
                self._queue.popleft().give_up()
                continue
            if request.intent.certain and len(self._flight):
                return
            if self._judge(request) is not None:
                return
            self._queue.popleft()

    def _judge(self, request: Request) -> LedgerError | None:
        """Sends or answers the request, or tells why the state at hand says no."""
        state = self._state
        assert state is not None
        engine = self._engine
        # Records in flight excuse nobody: they are planned, not decided.
        if request.attempts and not len(self._flight):
            excuse = request.intent.excuse(state)
            if excuse is not None:
                self._answer(request, excuse)
                return None
        try:
            record = request.intent.record(state, engine.mint_id(), engine.now_ms(), engine.reply)
            self._admit(request, record, state)
        except LedgerError as error:
            if isinstance(error, ContractError) or error.code in FINAL_CODES:
                request.refuse(error)
                return None
            return error
        before = state.chain
        verdict = preview(state, record)
        if verdict.outcome == "accepted":
            self._flight.send(record, verdict, request, state, before, self._ordinal)
            return None
        if verdict.landed:
            used = state.keys.get(record.key.key) if record.key is not None else None
            first_id = used.id if used is not None else record.id
            if not self._flight.join(first_id, request):
                self._answer(request, verdict, first_id)
            return None
        return refusal(verdict, state)

    def _admit(self, request: Request, record: Record, state: SessionState) -> None:
        limit = self._engine.log.size_bytes_max
        if len(record.value) + OVERHEAD_BYTES_MAX > limit:
            check_size(self.key, record.headers(), record.value, limit)
        if record.key is not None and record.key.key in state.keys:
            return
        self._engine.watch_end(self._partition)
        self._lag.admit(request.deadline, asyncio.get_running_loop().time())

    def _answer(self, request: Request, verdict: Verdict, commit_id: str = "") -> None:
        assert self._state is not None
        verdict = self._flight.certain(verdict)
        request.resolve(Landed(verdict, commit_id or verdict.id, self._state.open_id, self._flight.version))

    async def _refuse_head(self) -> None:
        """Tells the first request no, if the state it is judged on is not behind the log."""
        request = self._queue[0]
        if not await self._is_fresh(request):
            return
        if not self._ready or not self._queue or self._queue[0] is not request:
            return
        error = self._judge(request)
        self._queue.popleft()
        if error is not None:
            assert self._state is not None
            excuse = request.intent.excuse(self._state)
            if excuse is not None:
                self._answer(request, excuse)
            else:
                request.refuse(error)

    async def _is_fresh(self, request: Request) -> bool:
        """Whether the state has passed the log's end of a moment after the request came; gets nearer to it if
        not."""
        if request.fresh_offset < 0:
            request.waits_for("unavailable", "the log does not answer")
            try:
                request.fresh_offset = await self._engine.ends.after_now(self._partition)
            except Unavailable:
                await self._pause(self._engine.limits.retry_pause_ms)
                return False
            self._lag.saw_end(request.fresh_offset)
        if self._seen_next >= request.fresh_offset:
            return True
        request.waits_for("rebuilding", "the cache is behind the log", 500)
        seen = await self._look(self._state)
        if len(self._flight) or self._flight.broken:
            return False  # Meanwhile the request gave up, and those behind it went on.
        if seen is not None and self._adopt(seen) and self._seen_next >= request.fresh_offset:
            return True
        await self._pause(self._engine.limits.lock_retry_ms)
        return False

    async def _prepare(self) -> None:
        """Takes the lock and, with it, the state."""
        if self._lock.held:
            seen = await self._look(self._state)
            if seen is not None and not len(self._flight) and not self._adopt(seen):
                await self._pause(self._engine.limits.lock_retry_ms)
            return
        asked_at = asyncio.get_running_loop().time()
        self._free.clear()
        try:
            lock, seen = await self._engine.sight.acquire(self.key, self._engine.limits.lock_ttl_ms, self._state)
            if lock is None:
                self._obstacle("locked", "another writer holds the session")
                await self._lock.want()
        except CacheUnavailable:
            self._obstacle("unavailable", "the cache does not answer")
            await self._pause(self._engine.limits.retry_pause_ms)
            return
        self._saw(seen)
        if lock is None:
            await self._until_free()
            self._lock_pause_ms = min(self._lock_pause_ms * 2, LOCK_RETRY_MS_MAX)
            return
        self._lock_pause_ms = self._engine.limits.lock_retry_ms
        self._lock.taken(lock, asked_at)
        if not len(self._flight) and not self._adopt(seen):
            await self._pause(self._engine.limits.lock_retry_ms)

    async def _until_free(self) -> None:
        """Until the lock was given up, or it is time to try again: the message may be lost, and the holder
        dead."""
        try:
            async with asyncio.timeout(self._lock_pause_ms * (0.75 + self._engine.random.random() / 2) / 1000):
                await self._free.wait()
        except TimeoutError:
            return

    async def _look(self, known: SessionState | None) -> Seen | None:
        try:
            seen = await self._engine.sight.read(self.key, known)
        except CacheUnavailable:
            self._obstacle("unavailable", "the cache does not answer")
            await self._pause(self._engine.limits.retry_pause_ms)
            return None
        self._saw(seen)
        return seen

    def _saw(self, seen: Seen) -> None:
        self._lag.saw_next(seen.next_offset, asyncio.get_running_loop().time(), seen.rate)

    def _adopt(self, seen: Seen) -> bool:
        """Takes what the cache shows for the state to go on from, unless it is older than what is known."""
        if seen.code:
            self._obstacle(seen.code, seen.message)
            return False
        if seen.next_offset <= self._flight.told_offset:
            self._obstacle("rebuilding", "the cache lost its newest records and reads them again")
            return False
        self._state = seen.state
        self._seen_next = seen.next_offset
        self._ordinal = seen.ordinal
        self._flight.version = seen.version
        self._flight.stale = False
        return True

    def _obstacle(self, code: str, message: str) -> None:
        if code in STANDING_CODES:
            # What was known of another life of the log says nothing about the next one.
            self._state, self._flight.told_offset = None, -1
            while self._queue:
                self._queue.popleft().refuse(ProtocolError(code, message))
        for request in self._queue:
            request.waits_for(code, message, 500)

    async def _mend(self) -> None:
        """Makes new plans after something came back: settles what is known to have no place, and queues the rest
        again, in order, before all that came later."""
        self._state = None
        seen = await self._look(None)
        if seen is None or not self._adopt(seen):
            await self._pause(self._engine.limits.lock_retry_ms)
            return
        returned = list(self._flight.returned)
        try:
            made = [await self._flight.made_it(commit, seen) for commit in returned]
        except (Unavailable, CacheUnavailable, LedgerError):
            self._state = None
            await self._pause(self._engine.limits.retry_pause_ms)
            return
        if len(self._flight.returned) > len(returned):
            return
        again: list[Request] = []
        for commit, found in zip(self._flight.mended(), made, strict=True):
            again += self._returned(commit, found)
        self._queue.extendleft(reversed(again))
        if any(commit.verdict is None for commit in returned):
            self._obstacle("unavailable", "the log does not answer")
            await self._pause(self._engine.limits.retry_pause_ms)

    def _returned(self, commit: Commit, found: Verdict | None) -> list[Request]:
        """Those of the commit's requests that are to be tried again."""
        again: list[Request] = []
        verdict = commit.verdict
        for request in commit.requests:
            if verdict is not None and verdict.landed:
                continue
            request.landed_or_not(written=found is not None)
            if found is not None:
                request.resolve(Landed(found, commit.record.id, self._flight.open_id, self._flight.version))
            elif commit.refusal is not None:
                request.refuse(commit.refusal)
            elif request.open:
                request.attempts += verdict is not None
                if request.attempts < self._engine.limits.append_attempts_max:
                    again.append(request)
                else:
                    request.refuse(refusal(verdict or commit.planned, self._state or commit.state))
        return again

    async def _pause(self, pause_ms: float) -> None:
        await asyncio.sleep(pause_ms * (0.75 + self._engine.random.random() / 2) / 1000)
