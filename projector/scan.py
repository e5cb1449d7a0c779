"""Reading the log for certain: a read that brings nothing is no proof that there is nothing.

A leader that was just elected tells an early end to whoever fetches, but refuses to say where its log ends.
"""

from collections.abc import AsyncIterator

from producer.log import LogRecord, Unavailable
from projector.site import Site

__all__ = ["SCAN_RECORDS", "nothing_between", "session_records", "still_there"]

SCAN_RECORDS = 2000


async def nothing_between(site: Site, first: int, until: int) -> bool:
    """Whether the log reaches `until` and holds no record in [first, until). Raises Unavailable, or ProtocolError
    log-truncated."""
    if await _end(site) < until:
        return False
    found = await site.log.read(site.partition, first, 1, site.timeout_ms)
    if found:
        return found[0].offset >= until
    # Asked again, so that no change of leaders hides between the two answers.
    return await _end(site) >= until


async def session_records(site: Site, session: bytes, first: int, until: int) -> AsyncIterator[LogRecord]:
    """The session's records in [first, until), all of them. Raises Unavailable when the log ends before `until`,
    and ProtocolError log-truncated."""
    offset = first
    while offset < until:
        records = await site.log.read(site.partition, offset, SCAN_RECORDS, site.timeout_ms)
        if not records:
            if await nothing_between(site, offset, until):
                return
            raise Unavailable(f"the log tells an end at {offset}, but records up to {until} were folded")
        for record in records:
            if record.key == session and record.offset < until:
                yield record
        offset = records[-1].offset + 1


async def still_there(site: Site, session: bytes, offset: int) -> bool:
    """Whether the session's record at `offset` may still be in the log: nothing else stands there."""
    found = await site.log.read(site.partition, offset, 1, site.timeout_ms)
    return not found or (found[0].offset == offset and found[0].key == session)


async def _end(site: Site) -> int:
    return (await site.log.ends([site.partition], site.timeout_ms))[site.partition]
