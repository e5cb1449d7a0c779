"""A session's records that were handed to the log and have no verdict yet.

Each is followed until its fate is known: told by the fold, read from the cache, or seen in the log. A record is
never written twice, and a caller is never told no before it is certain that nothing of it can land.
"""

import asyncio
import logging
from collections import deque
from collections.abc import Callable
from functools import partial

import msgspec

from producer.accepted import find_maker
from producer.cache import CacheUnavailable
from producer.commits import Commit, Produced
from producer.engine import Engine
from producer.log import ProduceUnknown, Unavailable
from producer.requests import Landed, Request, unknown_outcome
from producer.sight import Seen
from surfacelog.errors import LedgerError
from surfacelog.records import Record
from surfacelog.state import SETTLED_MAX, SessionState
from surfacelog.verdict import Verdict

__all__ = ["Flight"]

_log = logging.getLogger("surfacelog.producer")


class Flight:
    """`changed` is called whenever something moved on. `broken`: something did not go as planned, so what was
    planned behind it is void. `stale`: the session cannot go on now, so its state is to be looked at before the
    next record. `returned`: records known to have no place in the history, in the order in which they were sent.
    `told_offset`: of the newest record whose verdict came; a state that lacks it is an old one."""

    def __init__(self, engine: Engine, session_key: bytes, changed: Callable[[], None]) -> None:
        self._engine = engine
        self._key = session_key
        self._partition = engine.sight.partition(session_key)
        self._lag = engine.lags[self._partition]
        self._changed = changed
        self._sent: deque[Commit] = deque()
        # Unknown records that the log does not show: they may still land, and void nothing until they do.
        self._adrift: dict[str, Commit] = {}
        self._poll_s = 0.0
        self._timer: asyncio.TimerHandle | None = None
        self._polling = False
        self.returned: list[Commit] = []
        self.broken = False
        self.stale = False
        self.told_offset = -1
        self.open_id = ""
        self.version = 0

    def __len__(self) -> int:
        return len(self._sent)

    @property
    def idle(self) -> bool:
        """Whether nothing is followed any more."""
        return not self._sent and not self._adrift and not self.broken

    def certain(self, verdict: Verdict) -> Verdict:
        """A repeat's verdict with the head that the history has for sure, not the one that is planned."""
        if not self._sent:
            return verdict
        for commit in reversed(self._sent):
            if commit.as_planned:
                # Told before those that it was built on; they are in the history too.
                return msgspec.structs.replace(
                    verdict, next_seq=commit.planned.next_seq, chain=commit.planned.chain
                )
        first = self._sent[0]
        return msgspec.structs.replace(verdict, next_seq=first.planned.seq, chain=first.before)

    @property
    def opening(self) -> bool:
        """Whether the session is just being opened. A commit must not overtake its open: a session that is not
        there remembers no ids, so the refusal of the commit would not hold for a second copy of it."""
        return bool(self._sent) and self._sent[0].record.kind == "open"

    def send(
        self,
        record: Record,
        planned: Verdict,
        request: Request,
        state: SessionState,
        before: bytes,
        ordinal: int,
    ) -> None:
        """Hands the record to the log. Records go out in the order of these calls. `before`: the chain that it
        continues; `state`: what it will leave."""
        now = asyncio.get_running_loop().time()
        self.open_id = state.open_id
        commit = Commit(record, planned, request, state, before, ordinal, now)
        request.sent(record.id)
        self._sent.append(commit)
        self._engine.verdicts.expect(record.id, partial(self._told, commit))
        self._begin(commit, request.deadline - now)
        self._arm()

    def _begin(self, commit: Commit, wait_s: float) -> None:
        record, quick = commit.record, self._engine.quick
        if quick is not None:
            told = partial(self._acknowledged, commit)
            try:
                if quick.send(self._partition, self._key, record.headers(), record.value, told):
                    return
            except (Unavailable, LedgerError) as error:
                # Not within the call that sends: whoever plans the next record has to see this one first.
                asyncio.get_running_loop().call_soon(self._refused, commit, error)
                return
        self._engine.producing(record.id, self._produce(commit, max(int(wait_s * 1000), 1)))

    def _acknowledged(self, commit: Commit, offset: int, error: Exception | None) -> None:
        if error is None:
            self._logged(commit, offset)
        else:
            self._refused(commit, error)

    def join(self, record_id: str, request: Request) -> bool:
        """Lets an idempotent repeat wait with the record that it repeats, if that is on its way."""
        for commit in self._sent:
            if commit.record.id == record_id and not commit.settled:
                request.sent(record_id)
                commit.requests.append(request)
                return True
        return False

    async def _produce(self, commit: Commit, wait_ms: int) -> None:
        record = commit.record
        try:
            offset = await self._engine.log.produce(
                self._partition, self._key, record.headers(), record.value, wait_ms
            )
        except Exception as error:
            self._refused(commit, error)
        else:
            self._logged(commit, offset)
        self._engine.produced(record.id)

    def _logged(self, commit: Commit, offset: int) -> None:
        commit.produced, commit.offset = Produced.LOGGED, offset
        self._lag.saw_end(offset + 1)
        for request in commit.requests:
            if request.logged:
                request.resolve(self._landed(commit, commit.landed_at(offset), provisional=True))

    def _refused(self, commit: Commit, error: BaseException) -> None:
        if isinstance(error, Unavailable | LedgerError):
            self._unwritten(commit, error if isinstance(error, LedgerError) else None)
            return
        if not isinstance(error, ProduceUnknown):
            # Nobody can say how far it came.
            _log.error("a record could not be produced", exc_info=error)
        commit.produced = Produced.UNKNOWN

    def _unwritten(self, commit: Commit, refusal: LedgerError | None) -> None:
        if commit.verdict is None:
            commit.produced, commit.refusal = Produced.UNWRITTEN, refusal
            self.broken = True
            self._engine.verdicts.forget(commit.record.id)
            self._settle()

    def _landed(self, commit: Commit, verdict: Verdict, *, provisional: bool = False) -> Landed:
        return Landed(verdict, commit.record.id, self.open_id, self.version, provisional)

    def _told(self, commit: Commit, verdict: Verdict) -> None:
        if commit.settled:
            return
        commit.verdict = verdict
        self._lag.passed(verdict.offset)
        if verdict.offset > self.told_offset:
            self.told_offset = verdict.offset
        if commit.as_planned:
            commit.keep_offset()
        else:
            self.broken = True
        if verdict.landed:
            landed = self._landed(commit, verdict)
            for request in commit.requests:
                request.landed(landed)
        if self._adrift and self._adrift.pop(commit.record.id, None) is not None:
            # The plans went on without it. Landed or not, they have to be made anew.
            self.broken = True
            self.returned.append(commit)
        self._settle()

    def _settle(self) -> None:
        while self._sent and self._sent[0].settled:
            commit = self._sent.popleft()
            if not commit.as_planned:
                self.returned.append(commit)
        self._changed()

    def mended(self) -> list[Commit]:
        """Takes what came back; the plans may be made anew."""
        assert not self._sent, "records are still on their way"
        found, self.returned, self.broken = self.returned, [], False
        return found

    async def made_it(self, commit: Commit, seen: Seen) -> Verdict | None:
        """The verdict on a record that was refused late and is in the history all the same: the refusal may be
        that of a second copy, once the verdict on the first is forgotten. Raises Unavailable, CacheUnavailable or
        log-truncated."""
        verdict = commit.verdict
        if verdict is None or verdict.landed or commit.record.kind != "commit":
            return None
        if verdict.seq >= seen.state.next_seq:
            return None
        if seen.state.status == "open":
            # How many verdicts came since tells nothing: an overflow of the windows forgets the newest too.
            return await self._made(commit)
        if seen.ordinal - commit.ordinal >= SETTLED_MAX:
            _tell_unknown(commit)
        return None

    async def _made(self, commit: Commit) -> Verdict | None:
        keys = self._engine.sight.keys(self._key)
        maker = await find_maker(
            self._engine.log,
            self._engine.cache,
            keys,
            self._partition,
            commit.record.seq,
            self._engine.limits.append_timeout_ms,
        )
        return commit.landed_at(maker[1]) if maker is not None and maker[0] == commit.record.id else None

    def _arm(self) -> None:
        """Polling begins when a verdict is late, and grows rarer."""
        if self._timer is None and (self._sent or self._adrift):
            self._poll_s = self._poll_s or self._engine.limits.verdict_poll_ms / 1000
            self._timer = asyncio.get_running_loop().call_later(self._poll_s, self._poll)

    def _poll(self) -> None:
        self._timer = None
        self._forget_adrift()
        if not self._sent and not self._adrift:
            self._poll_s = 0.0
            return
        limits = self._engine.limits
        if self._sent and self._age_s() < limits.verdict_poll_ms / 1000:
            self._poll_s = 0.0
        else:
            if self._overdue():
                self._begin_look()
            else:
                # Whether the fold has passed the record is asked once for all sessions of the partition.
                self._engine.watch_end(self._partition)
            self._poll_s = min(self._poll_s * 2, limits.verdict_poll_max_ms / 1000)
        self._arm()

    def _age_s(self) -> float:
        return asyncio.get_running_loop().time() - self._sent[0].sent_at

    def _overdue(self) -> bool:
        """Whether the oldest record's verdict must be there by now, or nobody can say."""
        if not self._sent:
            return True
        oldest = self._sent[0]
        if oldest.produced is Produced.LOGGED:
            return oldest.offset < self._lag.next_offset
        return (
            oldest.produced is Produced.UNKNOWN or self._age_s() > self._engine.limits.verdict_poll_max_ms / 1000
        )

    def _begin_look(self) -> None:
        if not self._polling:
            self._polling = True
            self._engine.spawn(self._look(), "verdict poll")

    def _forget_adrift(self) -> None:
        for name, commit in list(self._adrift.items()):
            if not any(request.open for request in commit.requests):
                del self._adrift[name]
                self._engine.verdicts.forget(name)
                for request in commit.requests:
                    request.landed_or_not(written=True)

    async def _look(self) -> None:
        try:
            self._give_up_waiting()
            unknown = [c for c in self._sent if c.produced is Produced.UNKNOWN and c.fresh_offset < 0]
            if unknown:
                end = await self._engine.ends.after_now(self._partition)
                for commit in unknown:
                    commit.fresh_offset = end
            next_offset = await self._engine.look(self._partition)
            waiting = [commit for commit in (*self._sent, *self._adrift.values()) if not commit.settled]
            for verdict in await self._engine.sight.recent(self._key, [c.record.id for c in waiting]):
                self._engine.verdicts.tell(verdict)
            if any(self._unexplained(commit, next_offset) for commit in waiting):
                await self._look_closer()
        except (Unavailable, CacheUnavailable, LedgerError):
            return
        finally:
            self._polling = False

    def _give_up_waiting(self) -> None:
        """A log that has not answered by a request's deadline is not waited for by those behind it."""
        now = asyncio.get_running_loop().time()
        for commit in self._sent:
            if commit.produced is Produced.WAITING and now >= commit.requests[0].deadline:
                commit.produced = Produced.UNKNOWN

    def _unexplained(self, commit: Commit, next_offset: int) -> bool:
        """Whether the fold has passed the record, or what may be one, and the newest verdicts do not tell of
        it."""
        if commit.settled:
            return False
        end = commit.offset + 1 if commit.produced is Produced.LOGGED else commit.fresh_offset
        return commit.produced is not Produced.WAITING and 0 <= end <= next_offset

    async def _look_closer(self) -> None:
        seen = await self._engine.sight.read(self._key)
        if seen.code:
            self.stale = True
            return
        for commit in [*self._sent, *self._adrift.values()]:
            await self._read_fate(commit, seen)

    async def _read_fate(self, commit: Commit, seen: Seen) -> None:
        if commit.settled:
            return
        verdict = seen.state.recent.get(commit.record.id)
        if verdict is None:
            verdict = await self._forgotten(commit, seen)
        if verdict is not None:
            self._engine.verdicts.tell(verdict)
        elif (
            commit.produced is Produced.UNKNOWN
            and 0 <= commit.fresh_offset <= seen.next_offset
            and self._sent
            and self._sent[0] is commit
        ):
            self._sent.popleft()
            self._adrift[commit.record.id] = commit
            self.broken = True
            # Those behind it may have their verdicts already, and nothing else would look at them again.
            self._settle()

    async def _forgotten(self, commit: Commit, seen: Seen) -> Verdict | None:
        """The fate of a record whose verdict the state does not show: the history may have gone past its place."""
        record = commit.record
        if record.kind != "commit":
            for request in commit.requests:
                excuse = request.intent.excuse(seen.state)
                if excuse is not None:
                    landed = commit.landed_at(max(excuse.offset, commit.offset))
                    # It needs no certain place, so others may stand before it: only the state tells the head.
                    return msgspec.structs.replace(landed, chain=seen.state.chain, next_seq=seen.state.next_seq)
        elif seen.state.status != "open":
            if 0 <= commit.offset < seen.next_offset:
                _tell_unknown(commit)
        elif seen.state.next_seq > record.seq:
            return await self._made(commit) or commit.refused_late()
        if 0 <= commit.offset < seen.next_offset:
            return commit.refused_late()
        return None


def _tell_unknown(commit: Commit) -> None:
    """The session was deleted, and the index of its commits with it: nobody can say any more."""
    for request in commit.requests:
        request.refuse(unknown_outcome(commit.record.id))
