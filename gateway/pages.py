"""Pages of a session's events and of its transcript, bounded in number and in bytes.

Recent events come from the cache, older ones from the log. A page that is cut says where to go on.
"""

from collections.abc import Sequence

from gateway.reads import WAIT_MS, Answer
from gateway.scripts import EVENTS, TRANSCRIPT
from gateway.view import View, Viewer
from producer.history import read_commits
from producer.log import EventLog
from surfacelog.entries import Place, read_places
from surfacelog.keys import SessionKeys

__all__ = ["Pages"]

# Places of commits that one transcript page may span: 1 MB of them.
WINDOW_PLACES = 65_536


class Pages:
    """`bytes_max`: a page ends when it has more, but never before its first event."""

    def __init__(self, viewer: Viewer, log: EventLog, bytes_max: int) -> None:
        self._viewer = viewer
        self._log = log
        self._bytes_max = bytes_max

    async def events(
        self,
        tenant: str,
        session: str,
        start: int,
        stop: int,
        limit: int,
        *,
        min_seq: int = -1,
        wait_ms: int = WAIT_MS,
    ) -> Answer:
        """Events of every type, from seq `start` to before `stop`, at most `limit`."""
        found, lines = await self.lines(tenant, session, start, stop, limit, min_seq=min_seq, wait_ms=wait_ms)
        following = start + len(lines)
        more = following < min(stop, found.seq)
        return _page(found, start, lines, following if more else None)

    async def lines(
        self,
        tenant: str,
        session: str,
        start: int,
        stop: int,
        limit: int,
        *,
        min_seq: int = -1,
        wait_ms: int = WAIT_MS,
    ) -> tuple[View, list[bytes]]:
        """The same page as the events' lines, without gaps from `start` on."""
        found = await self._viewer.reach(
            tenant, session, EVENTS, _event_keys, [start, stop, limit], min_seq, wait_ms / 1000
        )
        _, held, entries = found.rest
        if held is not None:
            return found, self._cut(held)
        places = read_places(entries)
        if not places or places[0][0] > start:
            raise await self._viewer.damaged(found)
        end = min(stop, start + limit, found.seq)
        lines: list[bytes] = []
        size = 0
        async for seq, commit in read_commits(self._log, found.partition, found.key, places):
            for line in commit[max(start - seq, 0) : max(end - seq, 0)]:
                size += len(line)
                if lines and size > self._bytes_max:
                    return found, lines
                lines.append(line)
            if seq + len(commit) >= end:
                break
        return found, lines

    async def settled(self, tenant: str, session: str) -> View:
        """The session's head in a state that is not behind the log."""
        return await self._viewer.settled(tenant, session, EVENTS, _event_keys, [0, 0, 0])

    async def transcript(
        self,
        tenant: str,
        session: str,
        start: int,
        stop: int,
        limit: int,
        *,
        min_seq: int = -1,
        wait_ms: int = WAIT_MS,
    ) -> Answer:
        """What a person saw, from place `start` of the transcript to before `stop`, at most `limit` events."""
        args = [start, stop, limit, WINDOW_PLACES]
        found = await self._viewer.reach(
            tenant, session, TRANSCRIPT, _transcript_keys, args, min_seq, wait_ms / 1000
        )
        tail, raw_seqs, held, entries, whole = found.rest
        if not whole:
            raise await self._viewer.damaged(found)
        seqs = [int(seq) for seq in raw_seqs or ()]
        old = [seq for seq in seqs if seq < tail]
        lines = await self._old(found, old, read_places(entries)) if old else []
        if len(lines) == len(old):
            first = max(seqs[0], tail) if seqs else 0
            lines += [held[seq - first] for seq in seqs[len(old) :]]
        lines = self._cut(lines)
        # A full page may be followed by more; a short one is the end unless it was cut.
        more = bool(lines) and (len(lines) < len(seqs) or len(seqs) == limit < stop - start)
        return _page(found, start, lines, start + len(lines) if more else None)

    async def _old(self, found: View, seqs: Sequence[int], places: Sequence[Place]) -> list[bytes]:
        if not places or places[0][0] > seqs[0]:
            raise await self._viewer.damaged(found)
        lines: list[bytes] = []
        size = 0
        async for seq, commit in read_commits(self._log, found.partition, found.key, _needed(places, seqs)):
            while len(lines) < len(seqs) and seqs[len(lines)] < seq + len(commit):
                lines.append(commit[seqs[len(lines)] - seq])
                size += len(lines[-1])
            if size > self._bytes_max:
                break
        return lines

    def _cut(self, lines: list[bytes]) -> list[bytes]:
        size = 0
        for place, line in enumerate(lines):
            size += len(line)
            if place and size > self._bytes_max:
                return lines[:place]
        return lines


def _event_keys(own: SessionKeys) -> Sequence[bytes]:
    return (own.tail, own.offsets)


def _transcript_keys(own: SessionKeys) -> Sequence[bytes]:
    return (own.tail, own.offsets, own.transcript)


def _needed(places: Sequence[Place], seqs: Sequence[int]) -> list[Place]:
    """The commits that hold one of `seqs`."""
    found: list[Place] = []
    at = 0
    for seq in seqs:
        while at + 1 < len(places) and places[at + 1][0] <= seq:
            at += 1
        if not found or found[-1] != places[at]:
            found.append(places[at])
    return found


def _page(found: View, start: int, lines: list[bytes], following: int | None) -> Answer:
    head = b'{"seq":%d,"generation":%d,"from":%d,"next":%s,"events":[' % (
        found.seq,
        found.generation,
        start,
        b"null" if following is None else b"%d" % following,
    )
    return Answer(head + b",".join(lines) + b"]}", found.seq, found.generation)
