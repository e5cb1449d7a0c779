"""What one read saw of a session at one moment, and whether it may be told.

Refuses with `rebuilding` rather than show less than there is: a lost piece is never an empty answer, a session is
called unknown only by a state that has passed the log's end, and an older state than asked for is waited out.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from gateway.news import News
from producer.cache import Argument, Cache, Script
from producer.checkpoint import read_entry
from producer.damage import report_damage
from producer.freshness import LogEnds
from surfacelog.errors import CODES, ProtocolError
from surfacelog.keys import PROJECTION_VERSION, PartitionKeys, SessionKeys, partition_of, record_key, tag_of

__all__ = ["View", "Viewer"]

FLIPS_MAX = 4
POLL_S = 0.05
NEGATIVE_POLL_S = 0.01
# How long a state may need to pass the log's end before a negative answer is put off.
NEGATIVE_WAIT_S = 2.0

KeysOf = Callable[[SessionKeys], Sequence[bytes]]


class View(msgspec.Struct, frozen=True, gc=False):
    """`place`: everything before this offset is in the state. `seq`: the next event's. `generation`: the content
    generation. `count`: messages of it; `pointer`: names their list. `faulted`: the session is parked, this is its
    last good state. `rest`: the script's own answers."""

    key: bytes
    partition: int
    place: int
    version: int
    open_id: str
    seq: int
    generation: int
    count: int
    pointer: str
    faulted: bool
    rest: list[Any]


def _nothing(_: View) -> int:
    return -1


class Viewer:
    """Reads through one cache; `ends` tells where the log ends, `news` when a partition went on."""

    def __init__(self, cache: Cache, topic: str, partitions: int, ends: LogEnds, news: News) -> None:
        self._cache = cache
        self._ends = ends
        self._news = news
        self._keys = [
            PartitionKeys(tag_of(number, partitions, topic), PROJECTION_VERSION) for number in range(partitions)
        ]

    async def look(
        self, tenant: str, session: str, script: Script, keys_of: KeysOf, args: Sequence[Argument]
    ) -> View:
        """The session now, in one round trip. Raises `no-session`, `gone`, `rebuilding` or what halted the
        partition, CacheUnavailable and Unavailable."""
        key = record_key(tenant, session)
        partition = partition_of(key, len(self._keys))
        place, found = await self._see(key, partition, script, keys_of, args)
        if found is not None:
            return found
        try:
            async with asyncio.timeout(NEGATIVE_WAIT_S):
                end = await self._ends.after_now(partition)
                while place < end:
                    await asyncio.sleep(NEGATIVE_POLL_S)
                    place, found = await self._see(key, partition, script, keys_of, args)
                    if found is not None:
                        return found
        except TimeoutError:
            raise ProtocolError("rebuilding", "the cache is behind the log; try again") from None
        raise ProtocolError("no-session", "no session of this id exists; create it first")

    async def reach(
        self,
        tenant: str,
        session: str,
        script: Script,
        keys_of: KeysOf,
        args: Sequence[Argument],
        min_seq: int,
        wait_s: float,
        seen: Callable[[View], int] = _nothing,
    ) -> View:
        """The session as soon as its state is whole and holds the events `min_seq` and `seen` of it (-1: none).
        Where `min_seq` is the very next event, it may also be the head that a reader was told: then the state as
        soon as it has passed the log's end of now. Raises `rebuilding`, with the present position if there is one,
        when it has not come so far after `wait_s`, and what `look` raises."""
        ask = (tenant, session, script, keys_of, args)
        found, refusal = await self._try(*ask)
        if found is not None and found.seq > max(min_seq, seen(found)):
            return found
        loop = asyncio.get_running_loop()
        until = loop.time() + wait_s
        key = record_key(tenant, session)
        partition = partition_of(key, len(self._keys))
        end: int | None = None
        async with self._news.watch(partition, key) as watch:
            while True:
                if found is not None and found.seq == min_seq > seen(found):
                    end = await self._end(partition) if end is None else end
                    if found.place >= end:
                        return found
                if (left := until - loop.time()) <= 0:
                    break
                await watch.wait(min(POLL_S, left))
                found, refusal = await self._try(*ask)
                if found is not None and found.seq > max(min_seq, seen(found)):
                    return found
        if found is None:
            raise refusal or rebuilding()
        raise ProtocolError(
            "rebuilding",
            f"the state does not hold event {max(min_seq, seen(found))} yet; try again",
            seq=found.seq,
            generation=found.generation,
        )

    async def settled(
        self, tenant: str, session: str, script: Script, keys_of: KeysOf, args: Sequence[Argument]
    ) -> View:
        """The session in a state that has passed the log's end as it is now: what it does not hold, there is not.
        Raises `rebuilding` when it has not in time, and what `look` raises."""
        try:
            async with asyncio.timeout(NEGATIVE_WAIT_S):
                end = await self._ends.after_now(partition_of(record_key(tenant, session), len(self._keys)))
                while (found := await self.look(tenant, session, script, keys_of, args)).place < end:
                    await asyncio.sleep(NEGATIVE_POLL_S)
                return found
        except TimeoutError:
            raise ProtocolError("rebuilding", "the cache is behind the log; try again") from None

    async def _end(self, partition: int) -> int:
        try:
            async with asyncio.timeout(NEGATIVE_WAIT_S):
                return await self._ends.after_now(partition)
        except TimeoutError:
            raise rebuilding() from None

    async def _try(
        self, tenant: str, session: str, script: Script, keys_of: KeysOf, args: Sequence[Argument]
    ) -> tuple[View | None, ProtocolError | None]:
        try:
            return await self.look(tenant, session, script, keys_of, args), None
        except ProtocolError as error:
            if error.code != "rebuilding":
                raise
            return None, error

    async def _see(
        self, key: bytes, partition: int, script: Script, keys_of: KeysOf, args: Sequence[Argument]
    ) -> tuple[int, View | None]:
        """(the checkpoint's next offset, what is there); None when this state knows no such session."""
        for _ in range(FLIPS_MAX):
            keys = self._keys[partition]
            own = keys.session(key)
            names = (keys.serving, keys.checkpoint, keys.directory, own.meta, *keys_of(own))
            seen = await self._cache.run(script, names, (keys.version, key, *args))
            if len(seen) > 1:
                try:
                    return _judge(key, partition, keys.version, seen)
                except Damaged:
                    await report_damage(self._cache, keys, key)
                    raise
            if seen[0] is None:
                raise rebuilding()
            # Another projection version serves now: what was read is not what readers use.
            self._keys[partition] = PartitionKeys(keys.tag, int(seen[0]))
        raise rebuilding()

    async def damaged(self, found: View) -> ProtocolError:
        """The refusal of a state whose pieces do not fit together; it is folded anew."""
        await report_damage(self._cache, self._keys[found.partition], found.key)
        return Damaged()

    def channel(self, partition: int) -> bytes:
        """The channel on which a partition's news comes."""
        return self._keys[partition].news


def _judge(key: bytes, partition: int, version: int, seen: list[Any]) -> tuple[int, View | None]:
    place, entry, meta = seen[1], read_entry(seen[2]), seen[3]
    if not place or place[0] is None:
        raise rebuilding()
    if place[2]:
        code = place[2].decode()
        raise ProtocolError(code if code in CODES else "unavailable", "this session's partition stands still")
    next_offset = int(place[0])
    if next_offset < int(place[1] or 0):
        raise rebuilding()
    if not meta or meta[0] is None:
        if entry is not None and entry.status == "deleted":
            raise _gone()
        if entry is not None and entry.status == "faulted" and entry.last < 0:
            raise ProtocolError("faulted", "the session is parked since its first record")
        if seen[2] is not None:
            # The directory knows it, so it is lost here.
            raise Damaged
        return next_offset, None
    status, open_id, seq, generation, count, pointer = meta
    if status == b"deleted":
        raise _gone()
    if seq is None or generation is None or count is None or open_id is None:
        raise Damaged
    faulted = entry is not None and entry.status == "faulted"
    return next_offset, View(
        key,
        partition,
        next_offset,
        version,
        open_id.decode(),
        int(seq),
        int(generation),
        int(count),
        (pointer or b"").decode(),
        faulted,
        list(seen[4:]),
    )


class Damaged(ProtocolError):
    """The session is not whole, although its partition is."""

    def __init__(self) -> None:
        super().__init__("rebuilding", "the session's state is being read again from the log; try again")


def rebuilding() -> ProtocolError:
    """The state cannot be shown whole now."""
    return ProtocolError("rebuilding", "the session's state is being read again from the log; try again")


def _gone() -> ProtocolError:
    return ProtocolError("gone", "the session was deleted; use another id")
