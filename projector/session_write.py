"""Puts a session's delta into a commit call: what must still hold of its keys, and what is written.

What the worker holds moves on only when `Written.keep` is called, after the call succeeded.
"""

from collections import deque
from collections.abc import Sequence

import msgspec

from producer.cache import Argument
from producer.checkpoint import DirEntry
from projector.commit import Call
from projector.delta import Delta
from projector.held import (
    HEADERS,
    KEYS,
    MESSAGES,
    OFFSETS,
    RECENT,
    SURFACE,
    TAIL,
    TOOLS,
    TRANSCRIPT,
    Held,
)
from surfacelog.entries import place_entry
from surfacelog.snapshot import header_entry, tools_entry

__all__ = ["TailBounds", "Written", "check_session", "write_session"]

# How long a reader that still has the old pointer may take.
OLD_MESSAGES_TTL_MS = 60_000


class TailBounds(msgspec.Struct, frozen=True):
    """How much of the newest events a session keeps beside its messages. Bodies are held once, so it is small, and
    at most a `share`-th of the messages."""

    events_max: int
    size_bytes_max: int
    share: int

    def bytes_of(self, message_bytes: int) -> int:
        """How much beside messages of that size."""
        return min(self.size_bytes_max, message_bytes // self.share) if self.share else self.size_bytes_max


class Written(msgspec.Struct, frozen=True):
    """What the worker holds of a session once the call has succeeded."""

    held: Held
    entry: DirEntry
    pointer: bytes
    lengths: tuple[int, ...]
    tail: deque[int]
    message_bytes: int
    meta: dict[bytes, bytes]
    digests: set[str]

    def keep(self) -> None:
        """The call succeeded."""
        held = self.held
        held.entry, held.pointer, held.lengths = self.entry, self.pointer, self.lengths
        held.tail, held.message_bytes, held.meta = self.tail, self.message_bytes, self.meta
        if self.digests is not held.digests:
            held.weigh_tables(self.digests)


def check_session(call: Call, session: bytes, held: Held) -> None:
    """The newest folded record and every length must be what the worker holds."""
    own = held.own
    call.check(session, "HGET", own.meta, held.meta.get(b"last"), "last")
    keys = (
        *(own.messages_at(held.pointer), own.surface, own.transcript, own.tail, own.offsets),
        *(own.recent, own.used_keys, own.headers, own.tools),
    )
    call.check_lengths(session, keys, held.lengths)


def write_session(
    call: Call,
    session: bytes,
    held: Held,
    delta: Delta,
    bounds: TailBounds,
    pointer: bytes,
    staged_bytes: int | None = None,
) -> Written:
    """`pointer`: of the message list from now on; another one than before when `delta.rebuilt`. `staged_bytes`:
    the size of a list that holds its messages already, None when this call is to build it."""
    own, state, lengths = held.own, held.state, list(held.lengths)
    tail, message_bytes = held.tail, held.message_bytes
    if delta.fresh:
        assert not held.meta, "the header is written only where nothing was"
        for key in (own.meta, own.surface, own.transcript, own.tail, own.offsets):
            call.write("DEL", key)
        for key in (own.recent, own.used_keys, own.headers, own.tools, own.parked):
            call.write("DEL", key)
    if state.status == "deleted":
        for key in (own.surface, own.transcript, own.tail, own.offsets, own.headers, own.tools):
            call.write("DEL", key)
        call.write("DEL", own.messages_at(held.pointer))
        for place in (MESSAGES, SURFACE, TRANSCRIPT, TAIL, OFFSETS, HEADERS, TOOLS):
            lengths[place] = 0
        tail, message_bytes, digests = deque(), 0, set[str]()
    else:
        message_bytes = _write_messages(call, session, held, delta, pointer, lengths, staged_bytes)
        _write_surface(call, held, delta, lengths)
        tail = _write_tail(call, held, delta.lines, bounds.events_max, bounds.bytes_of(message_bytes))
        lengths[TAIL] = len(tail)
        digests = _write_tables(call, held, delta, lengths)
    _write_windows(call, held, delta, lengths)
    before, changed = held.meta, list[Argument]()
    fields = held.fields(pointer, lengths, message_bytes)
    for field, value in fields.items():
        if before.get(field) != value or delta.fresh:
            changed += (field, value)
    call.write("HSET", own.meta, changed)
    meta = before | fields
    entry = DirEntry(state.first_offset, state.status, state.last)
    return Written(held, entry, pointer, tuple(lengths), tail, message_bytes, meta, digests)


def _write_messages(
    call: Call,
    session: bytes,
    held: Held,
    delta: Delta,
    pointer: bytes,
    lengths: list[int],
    staged_bytes: int | None,
) -> int:
    own = held.own
    key = own.messages_at(pointer)
    rebuilt = delta.rebuilt
    if rebuilt is None:
        if delta.messages:
            call.write("RPUSH", key, delta.messages)
            lengths[MESSAGES] += len(delta.messages)
        return held.message_bytes + sum(map(len, delta.messages))
    old = own.messages_at(held.pointer)
    lengths[MESSAGES] = rebuilt.count
    if held.pointer:
        call.write("PEXPIRE", old, (OLD_MESSAGES_TTL_MS,))
    if staged_bytes is not None:
        call.check(session, "LLEN", key, rebuilt.count)
        if rebuilt.count:
            call.write("PERSIST", key)
        return staged_bytes
    for piece in rebuilt.pieces:
        if isinstance(piece, tuple):
            call.copy(key, old, *piece)
        elif piece:
            call.write("RPUSH", key, piece)
    return held.message_bytes + rebuilt.size_bytes if held.pointer else rebuilt.size_bytes


def _write_surface(call: Call, held: Held, delta: Delta, lengths: list[int]) -> None:
    own = held.own
    if delta.rewritten:
        call.write("SET", own.surface, (delta.rows,))
        lengths[SURFACE] = len(delta.rows)
    elif delta.rows:
        call.write("APPEND", own.surface, (delta.rows,))
        lengths[SURFACE] += len(delta.rows)
    if delta.transcript:
        call.write("RPUSH", own.transcript, delta.transcript)
        lengths[TRANSCRIPT] += len(delta.transcript)
    if delta.commits:
        packed = b"".join(place_entry(seq, offset) for seq, offset in delta.commits)
        call.write("APPEND", own.offsets, (packed,))
        lengths[OFFSETS] += len(packed)


def _write_tail(
    call: Call, held: Held, lines: Sequence[bytes], events_max: int, size_bytes_max: int
) -> deque[int]:
    """The tail is always the session's newest events without a gap, so one that is too large empties it."""
    if not lines:
        return held.tail
    sizes = deque(held.tail)
    sizes.extend(map(len, lines))
    total, dropped = sum(sizes), 0
    while sizes and (len(sizes) > events_max or total > size_bytes_max):
        total -= sizes.popleft()
        dropped += 1
    old = len(held.tail)
    if old and dropped >= old:
        call.write("DEL", held.own.tail)
    elif dropped:
        call.write("LPOP", held.own.tail, (dropped,))
    kept = lines[max(dropped - old, 0) :]
    if kept:
        call.write("RPUSH", held.own.tail, kept)
    return sizes


def _write_tables(call: Call, held: Held, delta: Delta, lengths: list[int]) -> set[str]:
    digests = held.digests
    if not delta.tables:
        return digests
    headers: list[Argument] = []
    tools: list[Argument] = []
    new: dict[str, bytes] = {}
    for seq, table in delta.tables.items():
        headers += (b"%d" % seq, header_entry(table))
        if table.digest not in digests:
            new[table.digest] = tools_entry(table)
    for digest, table_bytes in new.items():
        tools += (digest.encode(), table_bytes)
    call.write("HSET", held.own.headers, headers)
    lengths[HEADERS] += len(delta.tables)
    if tools:
        call.write("HSET", held.own.tools, tools)
        lengths[TOOLS] += len(new)
    return digests | set(new)


def _write_windows(call: Call, held: Held, delta: Delta, lengths: list[int]) -> None:
    windows = (
        (held.own.recent, delta.recent_gone, delta.recent),
        (held.own.used_keys, delta.keys_gone, delta.keys),
    )
    for key, gone, found in windows:
        if gone:
            call.write("HDEL", key, gone)
        if found:
            call.write("HSET", key, [part for entry in found.items() for part in entry])
    lengths[RECENT] = len(held.state.recent)
    lengths[KEYS] = len(held.state.keys)
