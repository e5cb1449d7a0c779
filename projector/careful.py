"""Finds the record that kills the process: after assignments without progress each record is named in the
checkpoint before it is folded, so that the next worker knows it by the name that is left.

A worker may also be killed or expelled while it names a harmless record. So one name that is left makes a record
suspect, and only the name of a suspect parks its session.
"""

import msgspec

from producer.checkpoint import Checkpoint
from projector.commit import Call
from projector.fold import commit_id
from projector.opening import check_place
from projector.parking import park
from projector.site import Site
from projector.trouble import Fault, Moved

__all__ = ["OPENS_MAX", "SUSPECT", "Settled", "name_record", "settle_name"]

# One assignment without progress may be a restart; two are not.
OPENS_MAX = 2
# A field of the checkpoint beside those that every commit writes: of interest to whoever opens the partition only.
# Offsets before `next` mean nothing any more.
SUSPECT = b"suspect"


class Settled(msgspec.Struct, frozen=True):
    """The checkpoint to go on from. `careful`: name records before they are folded. `parked`: a session was."""

    place: Checkpoint
    careful: bool
    parked: bool = False


async def settle_name(site: Site, place: Checkpoint, own: int) -> Settled:
    """Looks whether a record was named when a worker ended. `own`: the offset that this very process named last;
    it lives, so a name that it left is that of a lost answer. Raises Moved."""
    naming = place.naming
    suspect = int(await site.cache.call("HGET", site.keys.checkpoint, SUSPECT) or -1)
    if naming >= 0 and naming == own:
        place = await name_record(site, place, -1)
    elif naming >= 0 and naming == suspect:
        place = await _park_named(site, place)
    elif naming >= 0:
        place = await _write(site, place, -1, suspect=naming)
        suspect = naming
    careful = place.opens > OPENS_MAX or suspect >= place.next
    return Settled(place, careful, parked=0 <= naming < place.next)


async def name_record(site: Site, place: Checkpoint, offset: int) -> Checkpoint:
    """Says in the checkpoint which record is folded next; raises Moved."""
    return await _write(site, place, offset)


async def _write(site: Site, place: Checkpoint, naming: int, suspect: int | None = None) -> Checkpoint:
    call = Call()
    check_place(call, site.keys, place)
    call.write("HSET", site.keys.checkpoint, (b"naming", naming))
    if suspect is not None:
        call.write("HSET", site.keys.checkpoint, (SUSPECT, suspect))
    if await call.run(site.cache):
        raise Moved("the checkpoint moved while a record was named")
    return msgspec.structs.replace(place, naming=naming)


async def _park_named(site: Site, place: Checkpoint) -> Checkpoint:
    records = await site.log.read(site.partition, place.naming, 1, site.timeout_ms)
    for record in records:
        if record.offset == place.naming and record.key is not None:
            return await park(site, place, Fault(record.key, record.offset, "faulted", commit_id(record)))
    return msgspec.structs.replace(place, naming=-1)
