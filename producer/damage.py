"""Sessions whose keys a reader or a writer found damaged: whoever projects the partition folds them anew.

Without it a session that nobody can write to any more would never be looked at again.
"""

from contextlib import suppress

from producer.cache import Cache, CacheUnavailable
from surfacelog.keys import PartitionKeys

__all__ = ["report_damage"]


async def report_damage(cache: Cache, keys: PartitionKeys, session_key: bytes) -> None:
    """Tells it, if the cache answers; telling it twice is harmless."""
    with suppress(CacheUnavailable):
        await cache.call("HSET", keys.damaged, session_key, b"1")
