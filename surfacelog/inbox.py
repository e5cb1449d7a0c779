"""Input that waits in a session: what `agent/inbox/spliced` events have queued and not yet taken out.

A projection of its own: an event that does not fit is a fault of the inbox and leaves all else readable.
"""

from collections.abc import Iterable
from typing import Any

import msgspec

from surfacelog.errors import ContractError
from surfacelog.events import Event, read_data

__all__ = ["Inbox", "InboxFault", "PendingInput", "inbox"]

TYPE = "agent/inbox/spliced"


class PendingInput(msgspec.Struct, frozen=True):
    """A queued message. `target`: the queue; `id`: the message's own; `seq`: the event that queued it."""

    target: str
    id: str
    seq: int


class InboxFault(msgspec.Struct, frozen=True):
    """An inbox event that could not be followed as it stands."""

    seq: int
    text: str


class Inbox(msgspec.Struct, frozen=True):
    """What is pending, queue by queue in the order in which the queues first came up, and what did not fit."""

    pending: tuple[PendingInput, ...] = ()
    faults: tuple[InboxFault, ...] = ()


class _Splice(msgspec.Struct, rename="camel"):
    target: str
    start: int = 0
    removed_count: int = 0
    inserted: list[dict[str, Any]] = []


def inbox(events: Iterable[Event]) -> Inbox:
    """The inbox after `events`."""
    queues: dict[str, list[PendingInput]] = {}
    faults: list[InboxFault] = []
    for event in events:
        if event.type != TYPE:
            continue
        try:
            splice = msgspec.convert(read_data(event.data), _Splice)
        except (msgspec.ValidationError, ContractError) as error:
            faults.append(InboxFault(event.seq, f"the splice cannot be read ({error})"))
            continue
        queue = queues.setdefault(splice.target, [])
        end = splice.start + splice.removed_count
        if splice.start < 0 or splice.removed_count < 0 or end > len(queue):
            faults.append(
                InboxFault(
                    event.seq,
                    f"{splice.removed_count} entries are taken out of {splice.target} at {splice.start}, "
                    f"which holds {len(queue)}",
                )
            )
            continue
        queue[splice.start : end] = [
            PendingInput(splice.target, str(item.get("id", f"{event.seq}:{place}")), event.seq)
            for place, item in enumerate(splice.inserted)
        ]
    pending = tuple(item for queue in queues.values() for item in queue)
    return Inbox(pending, tuple(faults))
