"""Going on after a crash: what an earlier run left open is closed under the new run's claim.

Closers are derived from a head and appended only if that is still the head; else they are derived anew.
"""

import msgspec

from producer.append import AppendIntent
from producer.claims import Claimed
from producer.engine import Engine
from producer.prefix import prefix_lines
from producer.requests import Asks
from surfacelog.errors import ProtocolError
from surfacelog.events import Draft, Event, decode_event
from surfacelog.keys import record_key
from surfacelog.repair import repair

__all__ = ["Resumed", "close_open"]

# Under a claim only earlier commits of the same claim can come between, and those are few.
TRIES = 8


class Resumed(msgspec.Struct, frozen=True, rename="camel"):
    """`claim`: what the new run holds. `closers`: how many events were appended, the first of them at `seq` (the
    head when none was needed)."""

    claim: Claimed
    closers: int
    seq: int
    next_seq: int
    token: str


async def close_open(
    engine: Engine, ask: Asks, tenant: str, session: str, held: Claimed, timeout_ms: int
) -> Resumed:
    """Appends the closers that the session needs, under the claim `held`."""
    for _ in range(TRIES):
        seen = await engine.fresh(record_key(tenant, session), timeout_ms)
        head, header = seen.state.next_seq, seen.state.header
        if header is None:
            raise ProtocolError("gone", "the session was deleted")
        lines = [line async for line in prefix_lines(engine, record_key(tenant, session), seen, head)]
        drafts = [draft_of(event) for event in repair(map(decode_event, lines), header.contract)]
        if not drafts:
            return Resumed(held, 0, head, head, held.token)
        intent = AppendIntent(drafts, expected_seq=head, fence=held.fence)
        try:
            landed = await ask(tenant, session, intent, timeout_ms)
        except ProtocolError as error:
            if error.code != "seq-conflict":
                raise
            continue
        next_seq = head + len(drafts)
        return Resumed(held, len(drafts), head, next_seq, landed.token(next_seq - 1))
    raise ProtocolError("seq-conflict", "the session goes on all the time; is another run using this claim?")


def draft_of(event: Event) -> Draft:
    """An event that the ledger is to number."""
    return Draft(
        event.type,
        event.data,
        event.time,
        event.ignorable,
        event.surface_op,
        event.source_event_seqs,
    )
