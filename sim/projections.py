"""What the cache holds of every session at the end, and what the fold says that it should hold, part by part."""

from collections.abc import Mapping

from producer.checkpoint import DirEntry
from producer.memory_data import MemoryData
from projector.settings import ProjectorSettings
from sim.history import History
from sim.world import World
from surfacelog.snapshot import Pieces, pieces
from surfacelog.state import SessionState

__all__ = ["Projection", "found_projections", "wanted_projections"]

Projection = Mapping[str, object]
# What the projector keeps beside the fold's own fields.
EXTRA_FIELDS = {b"mk", b"sizes", b"bytes"}


def found_projections(world: World) -> dict[bytes, Projection]:
    """Record key -> parts, of every session that a directory names."""
    data = world.cache.data
    found: dict[bytes, Projection] = {}
    for partition in range(world.topic.partitions):
        keys = world.keys(partition)
        for session, entry in data.call("HGETALL", keys.directory).items():
            found[session] = _found(world, data, partition, session, entry)
    return found


def _found(world: World, data: MemoryData, partition: int, session: bytes, entry: bytes) -> Projection:
    own = world.keys(partition).session(session)
    meta = data.call("HGETALL", own.meta)
    return {
        "directory": entry,
        "meta": {field: value for field, value in meta.items() if field not in EXTRA_FIELDS},
        "surface": data.call("GET", own.surface) or b"",
        "headers": data.call("HGETALL", own.headers),
        "tools": data.call("HGETALL", own.tools),
        "recent": data.call("HGETALL", own.recent),
        "keys": data.call("HGETALL", own.used_keys),
        "messages": data.call("LRANGE", own.messages + meta.get(b"mk", b""), 0, -1),
        "transcript": data.call("LRANGE", own.transcript, 0, -1),
        "offsets": data.call("GET", own.offsets) or b"",
        "tail": data.call("LRANGE", own.tail, 0, -1),
    }


def wanted_projections(histories: Mapping[bytes, History], settings: ProjectorSettings) -> dict[bytes, Projection]:
    """Record key -> parts, of every session that the log has."""
    return {
        key: _wanted(history, settings) for key, history in histories.items() if history.state.status != "absent"
    }


def _wanted(history: History, settings: ProjectorSettings) -> Projection:
    state: SessionState = history.state
    parts: Pieces = pieces(state)
    deleted = state.status == "deleted"
    commits = [
        (step.verdict.seq, step.offset)
        for step in history.steps
        if step.verdict.outcome == "accepted" and step.record is not None and step.record.kind == "commit"
    ]
    packed = b"".join(seq.to_bytes(8, "big") + offset.to_bytes(8, "big") for seq, offset in commits)
    return {
        "directory": DirEntry(state.first_offset, state.status, state.last).encode(),
        "meta": parts.meta,
        "surface": parts.surface,
        "headers": parts.headers,
        "tools": parts.tools,
        "recent": parts.recent,
        "keys": parts.keys,
        "messages": [body for _, body in history.surface],
        "transcript": [] if deleted else [b"%d" % seq for seq in history.transcript],
        "offsets": b"" if deleted else packed,
        "tail": [] if deleted else _tail(history.lines, settings),
    }


def _tail(lines: list[bytes], settings: ProjectorSettings) -> list[bytes]:
    kept: list[bytes] = []
    size_bytes = 0
    for line in reversed(lines[-settings.tail_events :] if settings.tail_events else []):
        size_bytes += len(line)
        if size_bytes > settings.tail_bytes:
            break
        kept.insert(0, line)
    return kept
