"""Taking up a partition: its checkpoint found or made, and the log checked to be the one it was made from.

A log that is shorter, older or another than the checkpoint knows is reported and never skipped.
"""

import msgspec

from producer.checkpoint import Checkpoint
from producer.state_reader import STATE_SCRIPT, parse_place, state_request
from projector.commit import PARTITION, Call
from projector.fold import commit_id
from projector.site import Site
from projector.trouble import Halted, Moved
from surfacelog.errors import ProtocolError
from surfacelog.keys import PartitionKeys

__all__ = ["check_place", "halt_partition", "open_partition", "restart_partition"]

TRIES = 5


def check_place(call: Call, keys: PartitionKeys, place: Checkpoint) -> None:
    """The checkpoint and the directory must be those the worker holds."""
    call.check(PARTITION, "HGET", keys.checkpoint, b"%d" % place.next, "next")
    call.check(PARTITION, "HGET", keys.checkpoint, place.epoch.encode(), "epoch")
    call.check(PARTITION, "HLEN", keys.directory, place.sessions)


async def open_partition(site: Site, reached: int = -1) -> Checkpoint:
    """The checkpoint to go on from. `reached`: the `next` that this worker saw before; a cache that lost its
    newest seconds is rebuilding up to the present log end. Raises Halted, Unavailable or CacheUnavailable."""
    for _ in range(TRIES):
        names, args = state_request(site.keys, [])
        _, place = parse_place(await site.cache.run(STATE_SCRIPT, names, args))
        start, end = await _ends(site)
        if place is None:
            if start > 0:
                raise Halted("log-truncated", f"the log starts at {start}; what was before it is lost")
            await restart_partition(site, None)
            continue
        problem = await _problem(site, place, start, end)
        if problem:
            halt = Halted("log-truncated", problem)
            await halt_partition(site, place, halt)
            raise halt
        target = max(place.target, end) if place.next < reached else place.target
        # Only where there is something to fold can an assignment be one without progress.
        opened = msgspec.structs.replace(place, target=target, opens=place.opens + (end > place.next), halted="")
        call = Call()
        check_place(call, site.keys, place)
        call.write("SETNX", site.keys.serving, (site.keys.version,))
        call.write("HSET", site.keys.checkpoint, opened.fields())
        failed = await call.run(site.cache)
        if not failed:
            return opened
        # Somebody moves the partition, and a restart does nothing; or the directory lost entries.
        await restart_partition(site, place)
    raise Moved("the checkpoint moves all the time")


async def restart_partition(site: Site, before: Checkpoint | None) -> bool:
    """Starts the partition from the log's start under a new epoch; False when `before` is not its checkpoint."""
    keys = site.keys
    start, end = await _ends(site)
    made = Checkpoint(next=start, target=end, epoch=site.nonce(), topic=site.log.topic_id)
    call = Call()
    call.check(PARTITION, "HGET", keys.checkpoint, None if before is None else before.epoch.encode(), "epoch")
    if before is not None:
        call.check(PARTITION, "HGET", keys.checkpoint, b"%d" % before.next, "next")
    call.write("DEL", keys.checkpoint)
    call.write("DEL", keys.directory)
    call.write("DEL", keys.faulted)
    call.write("SETNX", keys.serving, (keys.version,))
    call.write("HSET", keys.checkpoint, made.fields())
    return not await call.run(site.cache)


async def _ends(site: Site) -> tuple[int, int]:
    own = [site.partition]
    starts = await site.log.starts(own, site.timeout_ms)
    ends = await site.log.ends(own, site.timeout_ms)
    return starts[site.partition], ends[site.partition]


async def halt_partition(site: Site, place: Checkpoint, halt: Halted) -> None:
    """Tells readers and writers that the partition stands still, and why."""
    call = Call()
    call.check(PARTITION, "HGET", site.keys.checkpoint, place.epoch.encode(), "epoch")
    call.write("HSET", site.keys.checkpoint, (b"halted", halt.code.encode()))
    await call.run(site.cache)


async def _problem(site: Site, place: Checkpoint, start: int, end: int) -> str:
    if place.topic != site.log.topic_id:
        return "the topic was made anew since the checkpoint was written"
    if place.next > end:
        return f"the log ends at {end}, but records up to {place.next} were folded"
    if place.next < start:
        return f"the log starts at {start}, but only records up to {place.next} were folded"
    if place.last < start:
        return ""
    try:
        found = await site.log.read(site.partition, place.last, 1, site.timeout_ms)
    except ProtocolError as error:
        return error.message
    ids = [commit_id(record) for record in found if record.offset == place.last]
    if ids != [place.commit]:
        return f"the record at offset {place.last} is not the one that was folded"
    return ""
