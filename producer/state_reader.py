"""Reads what a writer validates against: checkpoint and session state, whole, of one moment, in one round trip.

A caller that still holds the state of the same chain gets no more than the few fields that tell so.
"""

from collections.abc import Mapping, Sequence
from importlib.resources import files
from typing import Any

import msgspec

from producer.cache import Argument, Cache, Script, TwinData
from producer.checkpoint import Checkpoint, DirEntry, read_checkpoint, read_entry
from surfacelog.keys import PartitionKeys, SessionKeys
from surfacelog.snapshot import Pieces, restore
from surfacelog.state import SessionState

__all__ = [
    "LENGTHS",
    "STATE_SCRIPT",
    "StateView",
    "parse_place",
    "parse_state",
    "parse_states",
    "read_state",
    "session_keys",
    "state_request",
]

LENGTHS = ("messages", "surface", "transcript", "tail", "offsets", "recent", "keys", "headers", "tools")


class StateView(msgspec.Struct, frozen=True):
    """`version`: the projection version that readers use, None when the cache holds nothing. `checkpoint`: None
    when it is lost. `state`: None when the cache has no such session, or it is not `whole` (a piece is missing
    or contradicts the others; the projector refolds it). `fresh`: the state was read now, and is not the caller's
    own. `entry`: the directory's word; one without a state means that the session was lost. `meta`, `lengths` (in
    the order of `LENGTHS`), `tail`: as found."""

    version: int | None
    checkpoint: Checkpoint | None
    state: SessionState | None
    fresh: bool
    whole: bool
    entry: DirEntry | None
    meta: Mapping[bytes, bytes]
    lengths: tuple[int, ...] = ()
    tail: tuple[bytes, ...] = ()


def state_request(
    keys: PartitionKeys, asked: Sequence[tuple[bytes, bytes]], *, tail: bool = False
) -> tuple[list[bytes], list[Argument]]:
    """KEYS and ARGV of `STATE_SCRIPT` for some sessions, each (record key, chain that the caller knows or b"")."""
    names: list[bytes] = [keys.serving, keys.checkpoint, keys.directory]
    args: list[Argument] = [int(tail)]
    for session, known in asked:
        own = keys.session(session)
        names += session_keys(own)
        args += (session, known)
    return names, args


def session_keys(own: SessionKeys) -> tuple[bytes, ...]:
    """The keys of one session in the order in which the scripts take them; `messages` without its pointer."""
    return (
        *(own.meta, own.surface, own.transcript, own.tail, own.offsets),
        *(own.recent, own.used_keys, own.headers, own.tools, own.messages),
    )


async def read_state(
    cache: Cache, keys: PartitionKeys, session_key: bytes, known: SessionState | None = None
) -> StateView:
    """One session's state; raises CacheUnavailable."""
    names, args = state_request(keys, [(session_key, known.chain if known else b"")])
    return parse_state(await cache.run(STATE_SCRIPT, names, args), known)


def parse_state(answer: Any, known: SessionState | None = None) -> StateView:
    """The answer of `STATE_SCRIPT` to a question for one session."""
    return parse_states(answer, [known])[0]


def parse_states(answer: Any, known: Sequence[SessionState | None]) -> list[StateView]:
    """The answer of `STATE_SCRIPT`, one view a session in the order in which they were asked for."""
    version, place = parse_place(answer)
    return [_view(version, place, found, held) for found, held in zip(answer[2], known, strict=True)]


def parse_place(answer: Any) -> tuple[int | None, Checkpoint | None]:
    """The serving version and the checkpoint in an answer of `STATE_SCRIPT`."""
    serving, checkpoint, _ = answer
    version = int(serving) if serving is not None and serving.isdigit() else None
    return version, read_checkpoint(_fields(checkpoint))


def _view(
    version: int | None, place: Checkpoint | None, found: Sequence[Any], known: SessionState | None
) -> StateView:
    entry, meta = read_entry(found[0]), _fields(found[1])
    if len(found) == 2:
        same = known is not None and meta.get(b"chain") == known.chain
        # A session that was parked at its first record has nothing but its entry.
        nothing = entry is None or (entry.status == "faulted" and entry.last < 0)
        whole = same or (not meta and nothing)
        return StateView(version, place, known if same else None, False, whole, entry, meta)
    lengths, tail = tuple(found[7]), tuple(found[8])
    state = None
    try:
        if msgspec.json.decode(meta[b"sizes"], type=tuple[int, ...]) == lengths:
            tables = [_fields(flat) for flat in found[3:7]]
            headers, tools, recent, used = tables
            state = restore(Pieces(meta, found[2] or b"", headers, tools, recent, used))
    except (KeyError, ValueError, TypeError, msgspec.MsgspecError):
        state = None
    return StateView(version, place, state, True, state is not None, entry, meta, lengths, tail)


def _fields(flat: Sequence[bytes]) -> dict[bytes, bytes]:
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _twin(data: TwinData, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
    call = data.call

    def flat(command: str, key: bytes) -> list[bytes]:
        return [part for pair in (_quiet(data, command, key) or {}).items() for part in pair]

    sessions: list[list[Any]] = []
    for index in range((len(args) - 1) // 2):
        own = keys[3 + index * 10 : 13 + index * 10]
        name, known = args[1 + index * 2 : 3 + index * 2]
        meta = _quiet(data, "HGETALL", own[0]) or {}
        found: list[Any] = [call("HGET", keys[2], name), flat("HGETALL", own[0])]
        if meta.get(b"chain", known) != known:
            commands = zip(
                ("LLEN", "STRLEN", "LLEN", "LLEN", "STRLEN"),
                (own[9] + meta.get(b"mk", b""), *own[1:5]),
                strict=True,
            )
            lengths = [_length(data, command, key) for command, key in commands]
            lengths += [_length(data, "HLEN", key) for key in own[5:9]]
            found += (_quiet(data, "GET", own[1]), flat("HGETALL", own[7]), flat("HGETALL", own[8]))
            found += (flat("HGETALL", own[5]), flat("HGETALL", own[6]), lengths)
            found.append(_quiet(data, "LRANGE", own[3], 0, -1) or [] if args[0] == 1 else [])
        sessions.append(found)
    return [call("GET", keys[0]), flat("HGETALL", keys[1]), sessions]


def _quiet(data: TwinData, command: str, key: bytes, *args: Argument) -> Any:
    try:
        return data.call(command, key, *args)
    except TypeError:
        return None


def _length(data: TwinData, command: str, key: bytes) -> int:
    found = _quiet(data, command, key)
    return -1 if found is None else int(found)


STATE_SCRIPT = Script("write-state", files("producer").joinpath("lua/write_state.lua").read_text(), _twin)
