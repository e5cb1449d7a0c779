"""`surfacelog verify`: recomputes every chain and fold from the log and compares them with the cache."""

import asyncio
from collections.abc import Iterable

import msgspec

from gateway.cli.servers import named_servers
from gateway.tenant import LOCAL_TENANT
from producer.cache import Cache, CacheUnavailable
from producer.connect import open_cache, open_log
from producer.log import EventLog, Unavailable
from producer.settings import ServerSettings
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.verify import Difference, Verification
from surfacelog.errors import ProtocolError
from surfacelog.events import decode_event
from surfacelog.keys import partition_of, record_key
from surfacelog.lifecycle import Finding, report

__all__ = ["Verified", "verify", "verify_sessions"]


class Verified(msgspec.Struct):
    """What was looked at and what was found. `waiting`: records of `parked` sessions that were not folded.
    `lifecycle`: by session, what does not nest in it."""

    sessions: int = 0
    records: int = 0
    parked: int = 0
    waiting: int = 0
    differences: list[Difference] = []
    lifecycle: dict[str, list[Finding]] = {}


def verify(
    *,
    kafka: str | None = None,
    redis: str | None = None,
    session: str | None = None,
    tenant: str = LOCAL_TENANT,
    lifecycle: bool = False,
    json: bool = False,
) -> int:
    """Read the log again and report where the cache is not what it gives. Exits with 1 if anything differs.

    Parameters
    ----------
    kafka
        Bootstrap servers host:port,….
    redis
        The Redis URL.
    session
        Look at this session alone; its partition of the log is read.
    tenant
        The tenant of the session.
    lifecycle
        Report turns, steps, tool calls and compactions that do not nest, too. Clients are free to write them.
    json
        Print everything as one JSON object.
    """
    servers = named_servers(kafka, redis)
    if servers.embedded:
        raise ProtocolError("misconfigured", "verify reads Kafka and Redis; give --kafka and --redis")
    only = None if session is None else [record_key(tenant, session)]
    try:
        found = asyncio.run(_run(servers, only, lifecycle))
    except (Unavailable, CacheUnavailable) as error:
        raise ProtocolError("unavailable", str(error)) from None
    if only is not None and not found.sessions and not found.differences:
        raise ProtocolError("no-session", f"neither log nor cache has session {session!r} of tenant {tenant!r}")
    if json:
        print(msgspec.json.encode(found).decode())
    else:
        _print(found)
    return 1 if found.differences else 0


async def _run(servers: ServerSettings, only: list[bytes] | None, lifecycle: bool) -> Verified:
    log = await open_log(servers)
    try:
        cache = await open_cache(servers)
        try:
            return await verify_sessions(log, cache, only, lifecycle)
        finally:
            await cache.close()
    finally:
        await log.close()


async def verify_sessions(
    log: EventLog, cache: Cache, only: list[bytes] | None = None, lifecycle: bool = False
) -> Verified:
    """Verifies all sessions, or those with the record keys `only`. Raises Unavailable and CacheUnavailable."""
    found = Verified(differences=[], lifecycle={})
    wanted = range(log.partitions) if only is None else sorted({partition_of(key, log.partitions) for key in only})
    for partition in wanted:
        verification = Verification(make_site(log, cache, partition, ProjectorSettings()), only, lines=lifecycle)
        found.differences += [difference async for difference in verification.run()]
        found.sessions += sum(fold.state.status != "absent" for fold in verification.folds.values())
        found.records += verification.records
        found.parked += len(verification.parked)
        found.waiting += verification.waiting
        for key, lines in verification.lines.items():
            findings = report(map(decode_event, lines))
            if findings:
                found.lifecycle[key.decode("ascii", "replace")] = findings
    return found


def _print(found: Verified) -> None:
    for difference in found.differences:
        where = difference.session or f"partition {difference.partition}"
        at = f" (offset {difference.offset})" if difference.offset >= 0 else ""
        print(f"{where}: {difference.what}: {difference.detail}{at}")
    for session, findings in found.lifecycle.items():
        _print_findings(session, findings)
    waiting = f" ({found.waiting} records wait and were not folded; retry them)" if found.waiting else ""
    print(
        f"{found.sessions} sessions, {found.records} records: {len(found.differences)} differences, "
        f"{found.parked} parked{waiting}"
    )


def _print_findings(session: str, findings: Iterable[Finding]) -> None:
    for finding in findings:
        print(f"{session}: seq {finding.seq}: {finding.text}")
