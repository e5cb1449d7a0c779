"""`surfacelog parked`: the sessions that were parked after a fault, and folding one anew."""

import asyncio

import msgspec

from gateway.cli.servers import named_servers
from gateway.tenant import LOCAL_TENANT
from producer.cache import Cache, CacheUnavailable
from producer.checkpoint import DirEntry, read_entry
from producer.connect import open_cache, open_log
from producer.log import EventLog, Unavailable
from producer.settings import ServerSettings
from projector.refold import retry_session
from projector.settings import ProjectorSettings
from projector.site import make_site
from surfacelog.errors import ProtocolError
from surfacelog.keys import partition_of, record_key, session_of

__all__ = ["Parked", "parked", "parked_sessions"]


class Parked(msgspec.Struct, frozen=True):
    """`code`, `offset`: why, and at which record. `records`: how many of its records wait, the first included."""

    tenant: str
    session: str
    partition: int
    code: str
    offset: int
    records: int


def parked(
    *,
    kafka: str | None = None,
    redis: str | None = None,
    retry: str | None = None,
    tenant: str = LOCAL_TENANT,
    json: bool = False,
) -> int:
    """List the sessions that were parked after a fault, or retry one. Exits with 1 when a retry fails again.

    Parameters
    ----------
    kafka
        Bootstrap servers host:port,….
    redis
        The Redis URL.
    retry
        Fold this session anew from the log, with this release's code.
    tenant
        The tenant of that session.
    json
        Print JSON.
    """
    servers = named_servers(kafka, redis)
    if servers.embedded:
        raise ProtocolError("misconfigured", "parked reads Kafka and Redis; give --kafka and --redis")
    try:
        return asyncio.run(_run(servers, None if retry is None else record_key(tenant, retry), json))
    except (Unavailable, CacheUnavailable) as error:
        raise ProtocolError("unavailable", str(error)) from None


async def _run(servers: ServerSettings, retry: bytes | None, json: bool) -> int:
    log = await open_log(servers)
    try:
        cache = await open_cache(servers)
        try:
            if retry is None:
                _print(await parked_sessions(log, cache), json)
                return 0
            site = make_site(log, cache, partition_of(retry, log.partitions), ProjectorSettings())
            entry = await retry_session(site, retry)
        finally:
            await cache.close()
    finally:
        await log.close()
    return _told(entry, json)


async def parked_sessions(log: EventLog, cache: Cache) -> list[Parked]:
    """Every parked session, by partition; raises CacheUnavailable."""
    found: list[Parked] = []
    for partition in range(log.partitions):
        site = make_site(log, cache, partition, ProjectorSettings())
        directory = await cache.call("HGETALL", site.keys.directory)
        for key, raw in sorted(directory.items()):
            entry = read_entry(raw)
            if entry is not None and entry.status == "faulted":
                tenant, session = session_of(key)
                waiting = await cache.call("LLEN", site.keys.session(key).parked)
                found.append(Parked(tenant, session, partition, entry.code, entry.at, waiting))
    return found


def _print(found: list[Parked], json: bool) -> None:
    if json:
        print(msgspec.json.encode(found).decode())
        return
    for one in found:
        print(
            f"{one.tenant}/{one.session}: {one.code} at offset {one.offset} of partition {one.partition}, ", end=""
        )
        print(f"{one.records} records wait")
    print(f"{len(found)} sessions are parked")


def _told(entry: DirEntry, json: bool) -> int:
    again = entry.status == "faulted"
    if json:
        print(msgspec.json.encode({"status": entry.status, "code": entry.code, "offset": entry.at}).decode())
    elif again:
        print(f"parked again: {entry.code} at offset {entry.at}")
    else:
        print("folded; the session goes on")
    return 1 if again else 0
