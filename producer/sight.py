"""What the cache shows a writer of one session: its state, how far the fold has come, and what stands in the
way."""

from collections.abc import Mapping, Sequence
from contextlib import suppress

import msgspec

from producer.cache import Cache, CacheLock
from producer.damage import report_damage
from producer.state_reader import STATE_SCRIPT, StateView, parse_state, state_request
from surfacelog.entries import entry_field, read_recent
from surfacelog.errors import CODES
from surfacelog.keys import PROJECTION_VERSION, PartitionKeys, SessionKeys, partition_of, tag_of
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["Seen", "Sight"]


class Seen(msgspec.Struct, frozen=True):
    """`state`: of the session, an absent one when there is none. `next_offset`: everything before it is in the
    state. `ordinal`: of the newest record that the state remembers. `code`: what forbids to go on (`rebuilding`,
    `faulted`, or why the partition is halted), or empty. `rate`: records a second that were folded lately, 0 if
    unknown."""

    state: SessionState
    next_offset: int
    version: int
    ordinal: int
    code: str = ""
    message: str = ""
    rate: int = 0


class Sight:
    """Reads through one cache. The version that readers use is remembered by partition, and asked for again when
    an answer names another one."""

    def __init__(self, cache: Cache, topic: str, partitions: int) -> None:
        self._cache = cache
        self._tags = [tag_of(partition, partitions, topic) for partition in range(partitions)]
        self._keys = [PartitionKeys(tag, PROJECTION_VERSION) for tag in self._tags]

    def partition(self, session_key: bytes) -> int:
        """The partition of a session."""
        return partition_of(session_key, len(self._tags))

    def keys(self, session_key: bytes) -> SessionKeys:
        """The session's keys at the version that was last seen."""
        return self._keys[self.partition(session_key)].session(session_key)

    def verdict_channels(self, reply: str) -> list[bytes]:
        """The channels of all partitions on which the producer `reply` hears of its verdicts."""
        return [keys.verdicts(reply.encode()) for keys in self._keys]

    def wanted_channel(self, session_key: bytes) -> bytes:
        """The channel on which it is told that somebody waits for the session's lock."""
        return self._keys[self.partition(session_key)].wanted

    def wanted_channels(self) -> list[bytes]:
        """Those of all partitions."""
        return [keys.wanted for keys in self._keys]

    async def read(self, session_key: bytes, known: SessionState | None = None) -> Seen:
        """What the cache shows now; `known` saves reading a state of the same chain again. Raises
        CacheUnavailable."""
        while True:
            partition = self.partition(session_key)
            names, args = self._request(partition, session_key, known)
            view = parse_state(await self._cache.run(STATE_SCRIPT, names, args), known)
            if self._is_current(partition, view):
                await self._look_after(partition, session_key, view)
                return seen(view)

    async def place(self, partition: int) -> tuple[int, int]:
        """(the next offset to be folded, records folded a second lately or 0) of the version last seen; raises
        CacheUnavailable."""
        found = await self._cache.call("HMGET", self._keys[partition].checkpoint, b"next", b"rate")
        next_offset, rate = (int(text) if text is not None and text.isdigit() else 0 for text in found)
        return next_offset, rate

    async def recent(self, session_key: bytes, record_ids: Sequence[str]) -> list[Verdict]:
        """The verdicts on these records that the session still remembers; raises CacheUnavailable."""
        if not record_ids:
            return []
        names = [entry_field(name) for name in record_ids]
        found = await self._cache.call("HMGET", self.keys(session_key).recent, *names)
        told: list[Verdict] = []
        for name, entry in zip(names, found, strict=True):
            # An entry that cannot be read is one that is not there: the projector folds the session anew.
            with suppress(msgspec.MsgspecError, ValueError, IndexError):
                if entry is not None:
                    told.append(read_recent(name, entry)[1])
        return told

    async def acquire(
        self, session_key: bytes, ttl_ms: int, known: SessionState | None
    ) -> tuple[CacheLock | None, Seen]:
        """Tries the session's lock once and reads, in one round trip."""
        partition = self.partition(session_key)
        names, args = self._request(partition, session_key, known)
        lock_key = self._keys[partition].session(session_key).lock
        lock, answer = await self._cache.acquire(lock_key, ttl_ms, STATE_SCRIPT, names, args)
        view = parse_state(answer, known)
        if self._is_current(partition, view):
            await self._look_after(partition, session_key, view)
            return lock, seen(view)
        return lock, await self.read(session_key, known)

    async def _look_after(self, partition: int, session_key: bytes, view: StateView) -> None:
        if not view.whole and view.checkpoint is not None and not view.checkpoint.rebuilding:
            await report_damage(self._cache, self._keys[partition], session_key)

    def _request(
        self, partition: int, session_key: bytes, known: SessionState | None
    ) -> tuple[list[bytes], list[bytes | int]]:
        chain = known.chain if known is not None else b""
        return state_request(self._keys[partition], [(session_key, chain)])

    def _is_current(self, partition: int, view: StateView) -> bool:
        if view.version is None or view.version == self._keys[partition].version:
            return True
        self._keys[partition] = PartitionKeys(self._tags[partition], view.version)
        return False


def seen(view: StateView) -> Seen:
    """The view as a writer needs it."""
    place = view.checkpoint
    code, message = _obstacle(view)
    return Seen(
        view.state if view.state is not None else SessionState(),
        place.next if place is not None else 0,
        view.version if view.version is not None else PROJECTION_VERSION,
        _number(view.meta, b"ordinal"),
        code,
        message,
        place.rate if place is not None else 0,
    )


def _obstacle(view: StateView) -> tuple[str, str]:
    place, entry = view.checkpoint, view.entry
    if place is not None and place.halted:
        code = place.halted if place.halted in CODES else "unavailable"
        return code, "the partition of this session stands still until an operator looks at it"
    if view.version is None or place is None or place.rebuilding:
        return "rebuilding", "the session's partition is being read again from the log"
    if entry is not None and entry.status == "faulted":
        return "faulted", "the session is parked after a fault; an operator can retry it"
    if not view.whole:
        return "rebuilding", "the session is being read again from the log"
    return "", ""


def _number(meta: Mapping[bytes, bytes], name: bytes) -> int:
    text = meta.get(name, b"0")
    return int(text) if text.isdigit() else 0
