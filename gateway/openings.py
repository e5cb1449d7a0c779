"""A create request's wishes as the header of a session."""

import msgspec

from gateway.bodies import Opening
from producer.ids import mint_id
from surfacelog.header import Header

__all__ = ["header_of"]


def header_of(wish: Opening, now_ms: int) -> Header:
    """The header that a request asks for, with an id and a time of its own where it names none."""
    fields = {name: value for name, value in msgspec.structs.asdict(wish).items() if value is not None}
    fields.pop("open_id", None)
    fields.setdefault("created_at", now_ms)
    # An empty id is a client's mistake, and is refused like any other that is none.
    fields.setdefault("id", mint_id())
    return Header(**fields)
