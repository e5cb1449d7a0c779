"""Which record made a seq: a look at the index of commits, and at the log itself.

A refusal that comes late may be that of a second copy, whose first copy made it; only the log can tell.
"""

from producer.cache import Cache
from producer.log import EventLog
from surfacelog.entries import PLACE_BYTES, read_places
from surfacelog.keys import SessionKeys
from surfacelog.records import read_record

__all__ = ["Maker", "find_maker"]

CHUNK_BYTES = 1024 * PLACE_BYTES

Maker = tuple[str, int]


async def find_maker(
    log: EventLog, cache: Cache, keys: SessionKeys, partition: int, seq: int, timeout_ms: int
) -> Maker | None:
    """(record id, offset) of the accepted commit whose first seq is `seq`; None when none begins there. Raises
    Unavailable, CacheUnavailable, or ProtocolError log-truncated."""
    offset = await _find_offset(cache, keys, seq)
    if offset is None:
        return None
    for record in await log.read(partition, offset, 1, timeout_ms):
        if record.offset == offset:
            found = read_record(record.headers, record.value)
            return None if found is None else (found.id, offset)
    return None


async def _find_offset(cache: Cache, keys: SessionKeys, seq: int) -> int | None:
    """From the newest commits backwards: what is asked for has nearly always just happened."""
    end = int(await cache.call("STRLEN", keys.offsets))
    while end > 0:
        start = max(end - CHUNK_BYTES, 0)
        chunk = await cache.call("GETRANGE", keys.offsets, start, end - 1)
        for first, offset in reversed(read_places(chunk)):
            if first == seq:
                return offset
            if first < seq:
                return None
        end = start
    return None
