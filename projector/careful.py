"""Finds the record that kills the process: after assignments without progress each record is named in the
checkpoint before it is folded, so that the next worker knows it by the name that is left."""

import msgspec

from producer.checkpoint import Checkpoint
from projector.commit import Call
from projector.fold import commit_id
from projector.opening import check_place
from projector.parking import park
from projector.site import Site
from projector.trouble import Fault, Moved

__all__ = ["fears_a_crash", "name_record", "park_named"]

# One assignment without progress may be a restart; two are not.
OPENS_MAX = 2


def fears_a_crash(place: Checkpoint) -> bool:
    """Whether records should be named before they are folded."""
    return place.opens > OPENS_MAX


async def name_record(site: Site, place: Checkpoint, offset: int) -> Checkpoint:
    """Says in the checkpoint which record is folded next; raises Moved."""
    named = msgspec.structs.replace(place, naming=offset)
    call = Call()
    check_place(call, site.keys, place)
    call.write("HSET", site.keys.checkpoint, (b"naming", offset))
    if await call.run(site.cache):
        raise Moved("the checkpoint moved while a record was named")
    return named


async def park_named(site: Site, place: Checkpoint) -> Checkpoint:
    """Parks the session of the record that was named when a worker died; the new checkpoint. Raises Moved."""
    records = await site.log.read(site.partition, place.naming, 1, site.timeout_ms)
    for record in records:
        if record.offset == place.naming and record.key is not None:
            return await park(site, place, Fault(record.key, record.offset, "faulted", commit_id(record)))
    return msgspec.structs.replace(place, naming=-1)
