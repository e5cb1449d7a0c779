"""Sharded channels on Redis: subscribing, noticing a dead connection, and taking it up anew.

In a cluster each channel is heard on the node that owns its slot; any trouble with one node makes the listener
ask again who owns what.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

from redis.asyncio import Redis, RedisCluster
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from producer.cache import LISTENING
from producer.endings import end_tasks

__all__ = ["listen_cluster", "listen_single"]

# A connection that died without a word is noticed after two silent intervals.
SILENCE_S = 10.0
BACKOFF_S_MAX = 1.0
Message = tuple[bytes, bytes]


async def listen_single(client: Redis, channels: Sequence[bytes]) -> AsyncIterator[Message]:
    """Messages on one server; `LISTENING` after every (re)subscription."""
    backoff_s = 0.01
    while True:
        pubsub: Any = client.pubsub()
        try:
            await _subscribe(pubsub, [channels])
            yield LISTENING
            backoff_s = 0.01
            while True:
                message = await _next(pubsub)
                if message is not None:
                    yield message
        except (RedisError, OSError):
            pass
        finally:
            with suppress(RedisError, OSError):
                await pubsub.aclose()
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)


async def listen_cluster(
    cluster: Any, url: str, channels: Sequence[bytes], options: Mapping[str, Any]
) -> AsyncIterator[Message]:
    """Messages on all nodes of a cluster; `LISTENING` when the subscriptions on all of them stand."""
    backoff_s = 0.01
    while True:
        try:
            nodes = await _owners(cluster, channels)
            async for message in _listen_nodes(nodes, url, options):
                backoff_s = 0.01
                yield message
        except (RedisError, OSError):
            pass
        await asyncio.sleep(backoff_s)
        backoff_s = min(backoff_s * 2, BACKOFF_S_MAX)


async def _owners(cluster: Any, channels: Sequence[bytes]) -> dict[tuple[str, int], list[list[bytes]]]:
    """(host, port) -> channels, those of one slot together, since one SSUBSCRIBE takes one slot."""
    await cluster.execute_command("PING", target_nodes=RedisCluster.RANDOM)
    slots: dict[int, list[bytes]] = defaultdict(list)
    for channel in channels:
        slots[cluster.keyslot(channel)].append(channel)
    found: dict[tuple[str, int], list[list[bytes]]] = defaultdict(list)
    for group in slots.values():
        node = cluster.get_node_from_key(group[0])
        if node is None:
            raise RedisError("no node owns the slot")
        found[node.host, int(node.port)].append(group)
    return found


async def _listen_nodes(
    nodes: Mapping[tuple[str, int], list[list[bytes]]], url: str, options: Mapping[str, Any]
) -> AsyncIterator[Message]:
    queue: asyncio.Queue[Message | BaseException] = asyncio.Queue()
    tasks = [
        asyncio.create_task(_feed(queue, url, host, port, groups, options))
        for (host, port), groups in nodes.items()
    ]
    standing = 0
    try:
        while True:
            message = await queue.get()
            if isinstance(message, BaseException):
                raise message
            if message == LISTENING:
                standing += 1
                if standing < len(tasks):
                    continue
            yield message
    finally:
        await end_tasks(tasks)


async def _feed(
    queue: "asyncio.Queue[Message | BaseException]",
    url: str,
    host: str,
    port: int,
    groups: list[list[bytes]],
    options: Mapping[str, Any],
) -> None:
    client = Redis.from_url(url, **options)
    client.connection_pool.connection_kwargs.update(host=host, port=port)
    pubsub: Any = client.pubsub()
    try:
        await _subscribe(pubsub, groups)
        queue.put_nowait(LISTENING)
        while True:
            message = await _next(pubsub)
            if message is not None:
                queue.put_nowait(message)
    except (RedisError, OSError) as error:
        queue.put_nowait(error)
    finally:
        with suppress(RedisError, OSError):
            await pubsub.aclose()
            await client.aclose()


async def _subscribe(pubsub: PubSub, groups: Sequence[Sequence[bytes]]) -> None:
    for group in groups:
        await pubsub.ssubscribe(*group)
    missing = sum(len(set(group)) for group in groups)
    while missing:
        message = await pubsub.get_message(timeout=SILENCE_S)
        if message is None:
            raise TimeoutError("the subscription was not confirmed")
        missing -= message["type"] == "ssubscribe"


async def _next(pubsub: PubSub) -> Message | None:
    # Read past the client's own `get_message`, which costs several times as much as the message: its retries and
    # its counting are done here, or not wanted.
    connection: Any = pubsub.connection
    if connection is None:
        raise RedisError("the subscription has no connection")
    words = await connection.read_response(timeout=SILENCE_S)
    if words is None:
        await pubsub.ping()
        words = await connection.read_response(timeout=SILENCE_S)
        if words is None:
            raise TimeoutError("the connection is silent")
    kind = words[0]
    if kind == b"sunsubscribe":
        # The slot moved to another node.
        raise RedisError("unsubscribed by the server")
    return (words[1], words[2]) if kind == b"smessage" else None
