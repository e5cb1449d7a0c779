"""What several rooms of these tests stand on."""

from collections.abc import AsyncIterator

import pytest

from producer.cache import Cache
from producer.memory_cache import MemoryCache
from producer.redis_cache import open_redis


@pytest.fixture(params=["memory", "redis", "cluster"])
async def cache(request: pytest.FixtureRequest) -> AsyncIterator[Cache]:
    """In memory, on a server, and on a cluster; a file with one of its own does not get this one."""
    if request.param == "memory":
        yield MemoryCache()
        return
    url = request.getfixturevalue("redis" if request.param == "redis" else "redis_cluster")
    client = await open_redis(url if isinstance(url, str) else url.url)
    yield client
    await client.close()
