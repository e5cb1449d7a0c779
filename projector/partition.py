"""The projection of one partition: folds its records and writes what they changed, each batch in one atomic step.

Nothing is written over a state that is not the one held: another worker's progress makes this one load anew, a
session whose keys are damaged is folded anew from the log.
"""

import asyncio
from collections import deque
from collections.abc import Sequence

import msgspec

from producer.cache import CacheUnavailable
from producer.checkpoint import Checkpoint
from producer.log import LogRecord
from producer.state_reader import STATE_SCRIPT, parse_place, parse_states, state_request
from projector.careful import name_record, settle_name
from projector.commit import PARTITION, Call
from projector.delta import changed_delta
from projector.fold import Fold, is_ours, verdict_payload
from projector.healing import Healing
from projector.held import Held
from projector.metrics import ProjectorMetrics
from projector.opening import check_place, halt_partition, open_partition
from projector.parking import park
from projector.rewrite import Rewrite, rewrite
from projector.scan import nothing_between
from projector.session_write import Written, check_session, write_session
from projector.site import Site
from projector.staging import StagingLost
from projector.states import States
from projector.trouble import Broken, Fault, Halted, Moved, Unwritable
from surfacelog.errors import ProtocolError
from surfacelog.keys import messages_pointer

__all__ = ["PartitionProjection"]

TRIES = 8
LOAD_SESSIONS_MAX = 64
YIELD_RECORDS = 64
# Fold speed is told from batches that are large enough to show it.
RATE_RECORDS_MIN = 50
DEAD_LETTERS_MAX = 100


class PartitionProjection:
    """`open` first; then `project` records in offset order, or `advance`."""

    def __init__(self, site: Site, states: States, metrics: ProjectorMetrics) -> None:
        self.site = site
        self.keys = site.keys
        self.partition = site.partition
        self.place = Checkpoint()
        self._healing = Healing(site)
        self._states = states
        self._metrics = metrics
        self._reached = -1
        self._suspect = -1
        self._alone = -1
        self._careful = 0
        self._named = -1
        self._target = 0

    async def open(self) -> int:
        """Loads the checkpoint; the offset to go on from. Raises as `open_partition`."""
        self.drop()
        self.place = await open_partition(self.site, self._reached)
        if self.place.rebuilding and self.place.target != self._target:
            self._metrics.rebuilds.inc()
        self._target = self.place.target
        settled = await settle_name(self.site, self.place, self._named)
        self.place = settled.place
        self._metrics.parks.inc(settled.parked)
        self._careful = self.site.settings.batch_records if settled.careful else 0
        self._reached = self.place.next
        return self.place.next

    def drop(self) -> None:
        """Forgets all states: on assign, loss and seek, and whenever it is unclear what was written."""
        self._states.drop_partition(self.partition)

    async def advance(self, until: int) -> int:
        """Fetches, folds and commits up to the offset `until` or the log's end; the offset reached. Raises as
        `project`."""
        while self.place.next < until:
            start = self.place.next
            records = await self._read(start, self.site.settings.batch_records)
            if not records:
                break
            await self.project([record for record in records if record.offset < until])
            if self.place.next == start:
                break
        return self.place.next

    async def project(self, records: Sequence[LogRecord]) -> None:
        """Folds the records and commits them. Raises Moved (open again, and seek), Halted, Unavailable or
        CacheUnavailable (it is unclear whether the last step was written: open again)."""
        started = asyncio.get_running_loop().time()
        for _ in range(TRIES):
            todo: list[LogRecord] = []
            try:
                todo = await self._following(records)
                if not todo:
                    break
                await self._project(todo)
            except Broken as broken:
                await self._heal(broken.sessions)
            except Halted as halt:
                await halt_partition(self.site, self.place, halt)
                raise
            except Unwritable:
                self.drop()
                self._alone = todo[-1].offset
            except Fault as fault:
                self.drop()
                if fault.offset != todo[0].offset:
                    self._suspect = fault.offset
                    continue
                self.place = await park(self.site, self.place, fault)
                self._metrics.parks.inc()
        else:
            raise Moved("its sessions break as fast as they are healed")
        self._measure(len(records), asyncio.get_running_loop().time() - started)

    async def _following(self, records: Sequence[LogRecord]) -> list[LogRecord]:
        """Those of the records that come next in the log, without what was folded before. Raises Moved when the
        first that is left was fetched ahead of others: they would be skipped for good."""
        found: list[LogRecord] = []
        following = self.place.next
        for record in records:
            if record.offset < following:
                continue
            if record.offset > following and not await self._is_gap(following, record.offset):
                if not found:
                    raise Moved(f"record {record.offset} came, but {following} is next")
                break
            found.append(record)
            following = record.offset + 1
        return found

    async def _is_gap(self, offset: int, until: int) -> bool:
        """Whether the log itself holds nothing from `offset` to before `until`."""
        records = await self._read(offset, 1)
        return bool(records) and records[0].offset == until

    def _measure(self, records: int, elapsed_s: float) -> None:
        if records >= RATE_RECORDS_MIN and elapsed_s > 0:
            rate = int(records / elapsed_s)
            # Half of the newest, half of what was known: a slow stretch shows at once.
            place = self.place
            self.place = msgspec.structs.replace(place, rate=(place.rate + rate) // 2 if place.rate else rate)

    async def tick(self) -> None:
        """Looks at a quiet partition: raises Moved when its checkpoint is lost or not the one held, else tells
        readers that somebody is there. Raises Halted when the log lost what comes next."""
        place = msgspec.structs.replace(self.place, advanced_ms=self.site.now_ms())
        if place.rebuilding and await self._is_done():
            # The log's last offsets hold no records.
            place = msgspec.structs.replace(place, next=place.target)
        call = Call()
        check_place(call, self.keys, self.place)
        call.write("SETNX", self.keys.serving, (self.keys.version,))
        call.write("HSET", self.keys.checkpoint, place.fields())
        if await call.run(self.site.cache):
            self.drop()
            raise Moved("a look found another checkpoint")
        self.place = place

    async def _is_done(self) -> bool:
        try:
            return await nothing_between(self.site, self.place.next, self.place.target)
        except ProtocolError as error:
            halt = Halted(error.code, error.message)
            await halt_partition(self.site, self.place, halt)
            raise halt from None

    async def mend(self) -> None:
        """Folds those sessions anew that a reader or a writer found damaged, and that are; counts those that are
        parked. Raises as `project`."""
        told: dict[bytes, bytes] = await self.site.cache.call("HGETALL", self.keys.damaged)
        for session in told:
            names, args = state_request(self.keys, [(session, b"")])
            answer = await self.site.cache.run(STATE_SCRIPT, names, args)
            self._same_place(parse_place(answer)[1])
            if not parse_states(answer, [None])[0].whole:
                await self._heal({session})
            await self.site.cache.call("HDEL", self.keys.damaged, session)
        parked = await self.site.cache.call("HLEN", self.keys.faulted)
        self._metrics.parked.labels(str(self.partition)).set(parked)

    async def _read(self, offset: int, records_max: int) -> list[LogRecord]:
        site = self.site
        try:
            return await site.log.read(site.partition, offset, records_max, site.timeout_ms)
        except ProtocolError as error:
            raise Halted(error.code, error.message) from None

    async def _project(self, records: Sequence[LogRecord]) -> None:
        loop = asyncio.get_running_loop()
        started = loop.time()
        held = await self._load(records)
        fold = Fold()
        self._metrics.took("load", loop.time() - started)
        left = deque(records)
        while left:
            if self._careful:
                self._careful -= 1
                self._named = left[0].offset
                self.place = await name_record(self.site, self.place, left[0].offset)
            # One partition folds at a time, and the others write meanwhile. If they took turns at every record,
            # all calls would be ready at once, and nothing left to do while the server works.
            async with self._states.turn:
                began = loop.time()
                try:
                    await self._fill(fold, left, held)
                except BaseException:
                    self.drop()  # What is half folded is worth nothing, not even after a cancellation.
                    raise
            fold = await self._commit(fold, began)
        self._states.trim()
        self._metrics.held.set(len(self._states))

    async def _fill(self, fold: Fold, left: deque[LogRecord], held: dict[bytes, Held | None]) -> None:
        """Folds what is left until that is enough for a call, or until the next record must wait for it."""
        settings = self.site.settings
        while left and not (fold.records and self._is_apart(left[0])):
            record = left.popleft()
            fold.take(record, held[record.key] if record.key is not None else None)
            if fold.is_full(settings.call_values, settings.call_bytes):
                return
            if not fold.records % YIELD_RECORDS:
                # A megabyte does not fit into a socket at once, and the rest of it must not wait for this fold.
                await asyncio.sleep(0)

    def _is_apart(self, record: LogRecord) -> bool:
        """Whether what came before the record must be written before it is folded."""
        offset = record.offset
        return bool(self._careful) or offset == self._suspect or offset <= self._alone or record.key is None

    async def _load(self, records: Sequence[LogRecord]) -> dict[bytes, Held | None]:
        """The states of all sessions of these records, from memory or from the cache."""
        found: dict[bytes, Held | None] = {}
        missing: list[bytes] = []
        for record in records:
            key = record.key
            if key is None or key in found:
                continue
            found[key] = self._states.get(self.partition, key)
            if found[key] is None and is_ours(key):
                missing.append(key)
        broken: set[bytes] = set()
        for first in range(0, len(missing), LOAD_SESSIONS_MAX):
            chunk = missing[first : first + LOAD_SESSIONS_MAX]
            names, args = state_request(self.keys, [(key, b"") for key in chunk], tail=True)
            answer = await self.site.cache.run(STATE_SCRIPT, names, args)
            self._same_place(parse_place(answer)[1])
            for key, view in zip(chunk, parse_states(answer, [None] * len(chunk)), strict=True):
                own = self.keys.session(key)
                if view.entry is None and not view.meta:
                    found[key] = Held(own)
                elif view.entry is not None and ((view.whole and view.state) or view.entry.status == "faulted"):
                    found[key] = Held.loaded(own, view)
                else:
                    broken.add(key)
        if broken:
            raise Broken(broken)
        return found

    def _same_place(self, place: Checkpoint | None) -> None:
        if place is None or place.next != self.place.next or place.epoch != self.place.epoch:
            self.drop()
            raise Moved(f"the checkpoint is {place}, not at {self.place.next}")

    async def _commit(self, fold: Fold, began: float) -> Fold:
        """Writes what was folded since the time `began`, in one step; a new fold. On any failure nothing held is
        trusted any more."""
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._metrics.took("fold", started - began)
        try:
            try:
                rewrites = await self._rewrites(fold)
                call, written, place = self._call(fold, rewrites)
            except (Broken, CacheUnavailable):
                raise
            except Exception as error:
                raise self._unwritable(fold) from error
            failed = set(await call.run(self.site.cache, self.site.nonce))
        except StagingLost:
            self.drop()
            raise Moved("what was staged for a commit is not there any more") from None
        except BaseException:
            self.drop()
            raise
        if failed:
            self.drop()
            if PARTITION in failed:
                self._metrics.moved.inc()
                raise Moved(f"a commit from {self.place.next} on found another checkpoint")
            raise Broken(failed)
        for session, kept in written.items():
            kept.keep()
            self._states.put(self.partition, session, kept.held)
        self.place = place
        self._reached = place.next
        self._suspect = -1
        self._count(fold, loop.time() - started)
        return Fold()

    def _unwritable(self, fold: Fold) -> Exception:
        """What was folded cannot be put into a call. Of one record alone it is known whose fault that is."""
        if fold.records == 1 and fold.touched:
            (session,) = fold.touched
            return Fault(session, fold.last, "faulted", fold.commit)
        return Unwritable()

    async def _rewrites(self, fold: Fold) -> dict[bytes, Rewrite]:
        found: dict[bytes, Rewrite] = {}
        for session, held in fold.touched.items():
            changes = held.state.changes
            if changes is None or held.state.status != "open":
                continue
            if any(plan.op in ("replace", "offload") for plan in changes.plans):
                try:
                    found[session] = await rewrite(self.site.cache, held, changes.plans, self.site.nonce())
                except StagingLost:
                    raise Broken({session}) from None
        return found

    def _call(self, fold: Fold, rewrites: dict[bytes, Rewrite]) -> tuple[Call, dict[bytes, Written], Checkpoint]:
        call, keys = Call(), self.keys
        check_place(call, keys, self.place)
        written: dict[bytes, Written] = {}
        directory: list[bytes] = []
        news: list[tuple[str, int, int]] = []
        added = 0
        for session, held in fold.touched.items():
            state = held.state
            if state.status == "absent":
                continue
            check_session(call, session, held)
            known = None if held.entry is None else held.entry.encode()
            call.check(session, "HGET", keys.directory, known, session.decode("ascii"))
            delta = changed_delta(state, state.drain())
            made = rewrites.get(session)
            pointer = held.pointer or messages_pointer(0, self.site.nonce())
            if made is not None:
                delta.rebuilt = made.wanted
                pointer = made.pointer
            staged = made.staged_bytes if made is not None else None
            written[session] = write_session(call, session, held, delta, self.site.bounds, pointer, staged)
            directory += (session, written[session].entry.encode())
            added += held.entry is None
            if session in fold.moved:
                news.append((session.decode("ascii"), state.next_seq, state.surface.content_generation))
        for session, (entry, offsets) in fold.parked.items():
            # Somebody may have retried the session since it was loaded.
            call.check(session, "HGET", keys.directory, entry.encode(), session.decode("ascii"))
            call.write("RPUSH", keys.session(session).parked, offsets)
        if fold.dead:
            call.write("RPUSH", keys.dead, fold.dead[-DEAD_LETTERS_MAX:])
            call.write("LTRIM", keys.dead, (-DEAD_LETTERS_MAX, -1))
        place = msgspec.structs.replace(
            self.place,
            next=fold.last + 1,
            last=fold.last,
            commit=fold.commit,
            sessions=self.place.sessions + added,
            advanced_ms=self.site.now_ms(),
            opens=0,
            naming=-1,
        )
        if directory:
            call.write("HSET", keys.directory, directory)
        call.write("SETNX", keys.serving, (keys.version,))
        call.write("HSET", keys.checkpoint, place.fields())
        for reply, verdicts in fold.verdicts.items():
            call.publish(keys.verdicts(reply.encode()), verdict_payload(verdicts))
        if news:
            call.publish(keys.news, msgspec.json.encode(news))
        return call, written, place

    def _count(self, fold: Fold, elapsed_s: float) -> None:
        metrics = self._metrics
        metrics.batches.inc()
        metrics.records.inc(fold.records)
        metrics.took("write", elapsed_s)
        for (outcome, code), count in fold.codes.items():
            metrics.decided(outcome, code, count)
        if fold.time_ms:
            age_s = max(self.site.now_ms() - fold.time_ms, 0) / 1000
            metrics.lag_seconds.labels(str(self.partition)).set(age_s)

    async def _heal(self, sessions: set[bytes]) -> None:
        self.drop()
        for session in sorted(sessions):
            self._metrics.refolded.inc()
            await self._healing.heal(self.place, session)
