"""A session that goes on from an earlier place of another one: the inherited prefix, its mark, and closers.

Seqs are kept, so every reference inside the prefix stays valid. Input that was queued at the cut is reported:
the child neither runs it silently nor loses it silently.
"""

from collections.abc import Iterable
from itertools import takewhile

import msgspec
from msgspec import Raw

from surfacelog.errors import ProtocolError
from surfacelog.events import Event
from surfacelog.inbox import Inbox, inbox
from surfacelog.lifecycle import Nesting
from surfacelog.repair import close

__all__ = ["Fork", "fork"]


class Fork(msgspec.Struct, frozen=True):
    """`inherited`: the parent's events up to the boundary. `own`: what the child writes first: the mark
    `session/end-seed`, then what closes the open call, step and turn. `inbox`: input queued at the cut."""

    inherited: tuple[Event, ...]
    own: tuple[Event, ...]
    inbox: Inbox

    @property
    def events(self) -> tuple[Event, ...]:
        """The child's first events."""
        return self.inherited + self.own


def fork(events: Iterable[Event], boundary: int, contract: str = "v4") -> Fork:
    """The child that inherits everything up to and including the seq `boundary`. Raises ProtocolError
    bad-request when the parent has no such event."""
    inherited = tuple(takewhile(lambda event: event.seq <= boundary, events))
    if not inherited or inherited[-1].seq != boundary:
        raise ProtocolError("bad-request", f"the session has no event {boundary} to fork at", boundary=boundary)
    nesting = Nesting().follow(inherited)
    mark = Event("session/end-seed", boundary + 1, inherited[-1].time, Raw(b"{}"))
    own = (mark, *close(nesting, boundary + 2, "forked", contract))
    return Fork(inherited, own, inbox(inherited))
