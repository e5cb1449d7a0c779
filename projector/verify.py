"""Reads the log again, recomputes every chain and fold, and compares them with the cache. Changes nothing.

Beside live traffic each session is compared at the moment of one read: the fold is taken on to the checkpoint that
the read saw. Of a parked session the state before its fault is compared; what waits behind is not folded, since it
may be what ends a process that folds it.
"""

from collections.abc import AsyncIterator, Collection

import msgspec

from producer.checkpoint import read_entry
from producer.state_reader import STATE_SCRIPT, parse_place, parse_states, state_request
from projector.compare import Shown, compare
from projector.refold import Refold
from projector.scan import SCAN_RECORDS, nothing_between, session_records
from projector.site import Site
from surfacelog.entries import PLACE_BYTES, read_places
from surfacelog.errors import ProtocolError

__all__ = ["Difference", "Verification"]

TRIES = 20


class Difference(msgspec.Struct, frozen=True, omit_defaults=True):
    """The first thing in which a session (or, with an empty `session`, a partition) is not what the log gives.
    `offset`: the record where it shows, -1 when it is not one record's."""

    partition: int
    session: str
    what: str
    detail: str
    offset: int = -1


class Verification:
    """One partition. `folds`: every session of the log so far. `only`: look at these sessions alone. `lines`: by
    session, the events of the log if they are asked for. `parked`: sessions that are parked; `waiting`: records of
    theirs that were not folded."""

    def __init__(self, site: Site, only: Collection[bytes] | None = None, *, lines: bool = False) -> None:
        self.site = site
        self.only = only
        self.folds: dict[bytes, Refold] = {}
        self.records = 0
        self.parked: list[bytes] = []
        self.waiting = 0
        self.lines: dict[bytes, list[bytes]] = {}
        self._keeps_lines = lines
        self._folded = 0
        self._offsets: dict[bytes, set[int]] = {}
        self._faults: dict[bytes, tuple[str, int]] = {}

    async def run(self) -> AsyncIterator[Difference]:
        """The differences, one a session at most. Raises Unavailable and CacheUnavailable."""
        site = self.site
        names, args = state_request(site.keys, [])
        _, place = parse_place(await site.cache.run(STATE_SCRIPT, names, args))
        if place is None:
            if (await site.log.ends([site.partition], site.timeout_ms))[site.partition] > 0:
                yield self._partition("checkpoint", "there is none, but the log has records")
            return
        if place.halted:
            yield self._partition(place.halted, "the partition stands still")
        if place.rebuilding:
            yield self._partition("rebuilding", f"at offset {place.next}, to {place.target}")
        directory = await site.cache.call("HGETALL", site.keys.directory)
        for session, raw in directory.items():
            entry = read_entry(raw)
            if entry is not None and entry.status == "faulted":
                self._faults[session] = (entry.code, entry.at)
        try:
            await self._fold(place.next)
        except ProtocolError as error:
            yield self._partition(error.code, error.message)
            return
        directory = await site.cache.call("HGETALL", site.keys.directory)
        wanted = set(directory) | {key for key, fold in self.folds.items() if fold.state.status != "absent"}
        for session in sorted(wanted if self.only is None else wanted & set(self.only)):
            found = await self._compare(session)
            if found is not None:
                yield found

    def _partition(self, what: str, detail: str) -> Difference:
        return Difference(self.site.partition, "", what, detail)

    async def _fold(self, until: int) -> None:
        site = self.site
        while self._folded < until:
            records = await site.log.read(site.partition, self._folded, SCAN_RECORDS, site.timeout_ms)
            if not records:
                if await nothing_between(site, self._folded, until):
                    self._folded = until
                    return
                raise ProtocolError("log-truncated", f"the log ends before {until}, which the cache has folded")
            for record in records:
                if record.offset >= until:
                    break
                self.records += 1
                key = record.key
                if key is not None and (self.only is None or key in self.only):
                    self._offsets.setdefault(key, set()).add(record.offset)
                    fold = self.folds.get(key)
                    if fold is None:
                        fold = self.folds[key] = Refold(site.bounds, self._faults.get(key))
                    fold.take(record)
                    if self._keeps_lines:
                        self.lines.setdefault(key, []).extend(fold.newest)
            self._folded = min(records[-1].offset + 1, until)

    async def _compare(self, session: bytes) -> Difference | None:
        site = self.site
        own = site.keys.session(session)
        for _ in range(TRIES):
            names, args = state_request(site.keys, [(session, b"")])
            view = parse_states(await site.cache.run(STATE_SCRIPT, names, args), [None])[0]
            if view.checkpoint is None:
                return self._partition("checkpoint", "it was lost while the partition was verified")
            pointer = view.meta.get(b"mk", b"")
            messages = await site.cache.call("LRANGE", own.messages_at(pointer), 0, -1)
            transcript = await site.cache.call("LRANGE", own.transcript, 0, -1)
            offsets = await site.cache.call("GETRANGE", own.offsets, 0, -1)
            if await site.cache.call("HGET", own.meta, b"last") != view.meta.get(b"last"):
                continue
            await self._fold(view.checkpoint.next)
            faulted = view.entry is not None and view.entry.status == "faulted"
            if session in self._faults and not faulted:
                await self._fold_again(session)
            # A torn last place is filled up, so that it shows as a commit that the log does not have.
            places = read_places(offsets + bytes(-len(offsets) % PLACE_BYTES))
            shown = Shown(view, messages, [int(seq) for seq in transcript], places)
            fold = self.folds.get(session)
            if fold is not None and (fold.fault is not None or faulted):
                self.parked.append(session)
                self.waiting += len(fold.parked)
            told = compare(fold, shown, self._offsets.get(session, set()), session in self._faults)
            return None if told is None else self._found(session, *told)
        return self._found(session, "moving", "the session changes too fast to be compared; try again")

    async def _fold_again(self, session: bytes) -> None:
        """Somebody retried it since it was found parked."""
        del self._faults[session]
        fold = self.folds[session] = Refold(self.site.bounds)
        self.lines.pop(session, None)
        async for record in session_records(self.site, session, 0, self._folded):
            fold.take(record)
            if self._keeps_lines:
                self.lines.setdefault(session, []).extend(fold.newest)

    def _found(self, session: bytes, what: str, detail: str, offset: int = -1) -> Difference:
        return Difference(self.site.partition, session.decode("ascii", "replace"), what, detail, offset)
