"""Parks a session whose record cannot be folded: its last good state is served, the others go on."""

import msgspec

from producer.checkpoint import Checkpoint, DirEntry
from producer.state_reader import STATE_SCRIPT, parse_states, state_request
from projector.commit import Call
from projector.opening import check_place
from projector.site import Site
from projector.trouble import Fault, Moved

__all__ = ["park"]


async def park(site: Site, place: Checkpoint, fault: Fault) -> Checkpoint:
    """Marks the session faulted in the directory and moves the checkpoint behind the record, whose offset is kept;
    the new checkpoint. Raises Moved."""
    names, args = state_request(site.keys, [(fault.session, b"")])
    view = parse_states(await site.cache.run(STATE_SCRIPT, names, args), [None])[0]
    known = view.entry or DirEntry(fault.offset, "faulted", -1)
    entry = msgspec.structs.replace(known, status="faulted", code=fault.code, at=fault.offset)
    moved = msgspec.structs.replace(
        place,
        next=fault.offset + 1,
        last=fault.offset,
        commit=fault.commit,
        sessions=place.sessions + (view.entry is None),
        advanced_ms=site.now_ms(),
        opens=0,
        naming=-1,
    )
    call = Call()
    check_place(call, site.keys, place)
    call.write("HSET", site.keys.directory, (fault.session, entry.encode()))
    call.write("HSET", site.keys.faulted, (fault.session, b"1"))
    waiting = site.keys.session(fault.session).parked
    if view.entry is None:
        # A session that the directory never heard of may have a list from an earlier filling of the cache.
        call.write("DEL", waiting)
    call.write("RPUSH", waiting, (fault.offset,))
    call.write("HSET", site.keys.checkpoint, moved.fields())
    if await call.run(site.cache):
        raise Moved("the checkpoint moved while a session was parked")
    return moved
