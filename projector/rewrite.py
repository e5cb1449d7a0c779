"""The message list of a new content generation: from scratch, in a fresh key, out of the messages that stay and
those that are new."""

from collections.abc import Sequence

import msgspec

from producer.cache import Cache
from projector.delta import MessageList, message_list, nodes_before, offloaded_seqs
from projector.held import Held
from projector.staging import STAGE_BYTES_MAX, STAGE_VALUES_MAX, StagingLost, stage
from surfacelog.derive import offload
from surfacelog.keys import messages_pointer
from surfacelog.surface import Plan

__all__ = ["Rewrite", "rewrite"]


class Rewrite(msgspec.Struct, frozen=True):
    """`staged_bytes`: the list's size when it stands in its key already; None when the commit builds it."""

    wanted: MessageList
    pointer: bytes
    staged_bytes: int | None


async def rewrite(cache: Cache, held: Held, plans: Sequence[Plan], nonce: str) -> Rewrite:
    """The list after `plans`, which made the surface what it is now. Raises StagingLost or CacheUnavailable."""
    after = held.state.surface.entries
    before = nodes_before(after, plans)
    bodies = {
        plan.added.seq: plan.message for plan in plans if plan.added is not None and plan.message is not None
    }
    changed = offloaded_seqs(plans)
    if changed:
        places = [node.seq for node in before if not node.empty]
        index = {seq: place for place, seq in enumerate(places)}
        for node in after:
            if node.seq in changed and not node.empty:
                body = bodies.get(node.seq)
                if body is None:
                    body = await cache.call("LINDEX", held.own.messages_at(held.pointer), index[node.seq])
                    if body is None:
                        raise StagingLost
                bodies[node.seq] = offload(body, node.offloaded)
    wanted = message_list(before, after, bodies)
    pointer = messages_pointer(held.state.surface.content_generation, nonce)
    # What is copied is at most all that the old list holds.
    if held.message_bytes + wanted.size_bytes <= STAGE_BYTES_MAX and wanted.new_count <= STAGE_VALUES_MAX:
        return Rewrite(wanted, pointer, None)
    own = held.own
    staged = await stage(cache, own.messages_at(pointer), own.messages_at(held.pointer), wanted)
    return Rewrite(wanted, pointer, staged)
