"""The session header: what an `open` record carries, and what every replay decides by."""

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from surfacelog.contract import SURFACE_TYPES
from surfacelog.errors import ProtocolError

__all__ = ["Header", "read_header"]

VOCABULARY_MAX = 256
# The header lies beside every state of the session, so it is small.
HEADER_BYTES_MAX = 64 * 1024
RULES = 1


class Header(msgspec.Struct, frozen=True, omit_defaults=True, rename="camel", forbid_unknown_fields=True):
    """`created_at`: integer ms. `checks`, `contract`, `vocabulary`, `rules` decide which events are accepted.
    `inherited_event_count` > 0 makes the session a fork that is copied up to that seq."""

    id: str
    created_at: Annotated[int, Meta(ge=-(2**53), le=2**53)]
    version: int = 4
    contract: Literal["v4", "v0"] = "v4"
    checks: Literal["surface", "paired"] = "surface"
    vocabulary: tuple[str, ...] = ()
    rules: int = RULES
    cwd: str | None = None
    parent_session: str | None = None
    is_seeded: bool | None = None
    inherited_event_count: Annotated[int, Meta(ge=0, le=2**53)] = 0
    origin: str | None = None
    delegation_depth: Annotated[int, Meta(ge=0, le=2**53)] | None = None
    agent_preset: str | None = None
    title: str | None = None

    def encode(self) -> bytes:
        """The header as the JSON bytes of an `open` record; the rule fields are always written out."""
        fields = msgspec.to_builtins(self)
        fields.update(contract=self.contract, checks=self.checks, vocabulary=self.vocabulary, rules=self.rules)
        return msgspec.json.encode(fields)


def read_header(value: bytes) -> Header:
    """The header in an `open` record's value; raises `malformed`."""
    if len(value) > HEADER_BYTES_MAX:
        raise ProtocolError("malformed", f"a session header has at most {HEADER_BYTES_MAX} bytes")
    try:
        header = msgspec.json.decode(value, type=Header)
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError(
            "malformed", f"the session header cannot be read ({error}); correct the named field"
        ) from None
    if header.rules != RULES:
        raise ProtocolError("malformed", f"rules revision {header.rules} is not known here; use {RULES}")
    if len(header.vocabulary) > VOCABULARY_MAX:
        raise ProtocolError("malformed", f"a vocabulary has at most {VOCABULARY_MAX} types")
    if not SURFACE_TYPES.isdisjoint(header.vocabulary) or "" in header.vocabulary:
        raise ProtocolError("malformed", "the vocabulary names log-only types; a surface type cannot be one")
    return header
