"""The events of a session from its first one on, as the log holds them."""

from collections.abc import AsyncIterator

from producer.engine import Engine
from producer.history import places_of, read_commits
from producer.sight import Seen

__all__ = ["prefix_lines"]

# A megabyte of places: 65,536 commits.
CHUNK_BYTES = 1 << 20


async def prefix_lines(engine: Engine, session_key: bytes, seen: Seen, stop: int) -> AsyncIterator[bytes]:
    """The lines of the events before seq `stop` of the session that was `seen`, in order. Raises Unavailable,
    CacheUnavailable, or `log-truncated`."""
    keys = engine.sight.keys(session_key)
    partition = engine.sight.partition(session_key)
    assert stop <= seen.state.next_seq, "the session has no such events"
    at = 0
    while True:
        chunk = await engine.cache.call("GETRANGE", keys.offsets, at, at + CHUNK_BYTES - 1)
        places = [place for place in places_of(chunk or b"") if place[0] < stop]
        async for seq, lines in read_commits(engine.log, partition, session_key, places):
            for line in lines[: stop - seq]:
                yield line
        if len(chunk or b"") < CHUNK_BYTES or not places:
            return
        at += CHUNK_BYTES
