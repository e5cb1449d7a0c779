"""The events of a session from its first one on, as the log holds them."""

from collections.abc import AsyncIterator

from producer.cache import CacheUnavailable
from producer.engine import Engine
from producer.history import read_commits
from producer.log import Unavailable
from producer.sight import Seen
from surfacelog.entries import read_places
from surfacelog.errors import ProtocolError

__all__ = ["prefix_lines"]

# A megabyte of places: 65,536 commits.
CHUNK_BYTES = 1 << 20


async def prefix_lines(engine: Engine, session_key: bytes, seen: Seen, stop: int) -> AsyncIterator[bytes]:
    """The lines of the events before seq `stop` of the session that was `seen`, in order. Raises `unavailable` or
    `log-truncated`."""
    assert stop <= seen.state.next_seq, "the session has no such events"
    try:
        async for line in _lines(engine, session_key, stop):
            yield line
    except (Unavailable, CacheUnavailable):
        message = "the log or the cache does not answer; what was begun can be taken up by the same call"
        raise ProtocolError("unavailable", message) from None


async def _lines(engine: Engine, session_key: bytes, stop: int) -> AsyncIterator[bytes]:
    keys = engine.sight.keys(session_key)
    partition = engine.sight.partition(session_key)
    at = 0
    while True:
        chunk = await engine.cache.call("GETRANGE", keys.offsets, at, at + CHUNK_BYTES - 1)
        places = [place for place in read_places(chunk or b"") if place[0] < stop]
        async for seq, lines in read_commits(engine.log, partition, session_key, places):
            for line in lines[: stop - seq]:
                yield line
        if len(chunk or b"") < CHUNK_BYTES or not places:
            return
        at += CHUNK_BYTES
