"""A session's state as the pieces that a cache or a snapshot keeps, and back.

`restore(pieces(state))` folds on exactly as `state` would. Pieces that only grow or change by single entries
(nodes, headers, windows) are apart from `meta`, so that a projection writes what changed and no more.
"""

from collections.abc import Mapping

import msgspec

from surfacelog.claim import Claim
from surfacelog.entries import key_entry, read_key, read_recent, recent_entry, rows_of
from surfacelog.errors import LedgerError
from surfacelog.header import read_header
from surfacelog.state import SessionState
from surfacelog.surface import Node, Surface, ToolTable

__all__ = [
    "Pieces",
    "header_entry",
    "header_of",
    "meta_of",
    "pieces",
    "restore",
    "scalars_of",
    "tools_entry",
]

_rows = msgspec.json.Decoder(Node)
_calls = msgspec.json.Decoder(dict[str, int])
_counts = msgspec.json.Decoder(dict[str, int])
_claim = msgspec.json.Decoder(Claim)
_tools = msgspec.json.Decoder(dict[str, str])

HEADER_PART_BYTES = 64
Fields = Mapping[bytes, bytes]


class Pieces(msgspec.Struct, frozen=True):
    """`meta`: hash. `surface`: one JSON row a node, each ended by a newline. `headers`: seq -> tool table digest.
    `tools`: digest -> table. `recent`, `keys`: see `entries`."""

    meta: Fields
    surface: bytes = b""
    headers: Fields = {}
    tools: Fields = {}
    recent: Fields = {}
    keys: Fields = {}


def meta_of(state: SessionState) -> dict[bytes, bytes]:
    """The hash of a session's scalar state. Never empty for a session that exists."""
    return {**_header_fields(state.header_raw), **scalars_of(state)}


def scalars_of(state: SessionState) -> dict[bytes, bytes]:
    """What may change of the `meta` hash: all but the header."""
    surface = state.surface
    return {
        b"status": state.status.encode(),
        b"open": state.open_id.encode(),
        b"first": b"%d" % state.first_offset,
        b"last": b"%d" % state.last,
        b"next": b"%d" % state.next_seq,
        b"chain": state.chain,
        b"root": state.root,
        b"claim": msgspec.json.encode(state.claim),
        b"replaces": b"%d" % surface.replace_generation,
        b"content": b"%d" % surface.content_generation,
        b"nodes": b"%d" % len(surface.entries),
        b"messages": b"%d" % surface.message_count,
        b"transcript": b"%d" % state.transcript_count,
        b"calls": msgspec.json.encode(surface.open_calls),
        b"accepted": b"%d" % state.accepted,
        b"rejected": msgspec.json.encode(state.rejected),
        b"ordinal": b"%d" % state.ordinal,
        b"floor": b"%d" % state.keys_floor,
    }


def _header_fields(raw: bytes) -> dict[bytes, bytes]:
    # Redis keeps a hash in half of the space while no value of it has more than 64 bytes.
    return {
        b"header%d" % place if place else b"header": raw[place : place + HEADER_PART_BYTES]
        for place in range(0, max(len(raw), 1), HEADER_PART_BYTES)
    }


def header_of(meta: Fields) -> bytes:
    """The session header in a `meta` hash, as it came in the `open` record; raises KeyError without one."""
    found, place = meta[b"header"], HEADER_PART_BYTES
    while (part := meta.get(b"header%d" % place)) is not None:
        found, place = found + part, place + HEADER_PART_BYTES
    return found


def header_entry(table: ToolTable) -> bytes:
    """What the `headers` hash holds for one seq."""
    return table.digest.encode()


def tools_entry(table: ToolTable) -> bytes:
    """What the `tools` hash holds under the table's digest."""
    return msgspec.json.encode(table.tools)


def pieces(state: SessionState) -> Pieces:
    """The whole state as pieces."""
    ordinals = state.settled | {name: place for name, (_, place) in state.refused.items()}
    tables = state.surface.headers
    return Pieces(
        meta=meta_of(state),
        surface=rows_of(state.surface.entries),
        headers={b"%d" % seq: header_entry(table) for seq, table in tables.items()},
        tools={table.digest.encode(): tools_entry(table) for table in tables.values()},
        recent=dict(recent_entry(ordinals[name], verdict) for name, verdict in state.recent.items()),
        keys=dict(key_entry(name, used) for name, used in state.keys.items()),
    )


def restore(found: Pieces) -> SessionState:
    """The state that the pieces were made from. Raises msgspec.MsgspecError, KeyError or ValueError when they are
    not whole; the caller then folds anew from the log."""
    meta = found.meta
    state = SessionState()
    state.status = meta[b"status"].decode()
    state.open_id = meta[b"open"].decode()
    state.header_raw = header_of(meta)
    try:
        state.header = read_header(state.header_raw)
    except LedgerError as error:
        raise ValueError(error.message) from None
    state.first_offset = int(meta[b"first"])
    state.last = int(meta[b"last"])
    state.chain = bytes(meta[b"chain"])
    state.root = bytes(meta[b"root"])
    state.claim = _claim.decode(meta[b"claim"])
    state.transcript_count = int(meta[b"transcript"])
    state.accepted = int(meta[b"accepted"])
    state.rejected = _counts.decode(meta[b"rejected"])
    state.ordinal = int(meta[b"ordinal"])
    state.keys_floor = int(meta[b"floor"])
    state.surface = _surface(state, found)
    if len(state.surface.entries) != int(meta[b"nodes"]):
        raise ValueError("the node rows are not those that the meta hash counts")
    _windows(state, found)
    return state


def _surface(state: SessionState, found: Pieces) -> Surface:
    assert state.header is not None
    tables = {digest: ToolTable(digest.decode(), _tools.decode(table)) for digest, table in found.tools.items()}
    return Surface.restore(
        state.header.contract,
        checks=state.header.checks,
        vocabulary=state.header.vocabulary,
        next_seq=int(found.meta[b"next"]),
        replace_generation=int(found.meta[b"replaces"]),
        content_generation=int(found.meta[b"content"]),
        nodes=_rows.decode_lines(found.surface),
        open_calls=_calls.decode(found.meta[b"calls"]),
        headers={int(seq): tables[digest] for seq, digest in found.headers.items()},
    )


def _windows(state: SessionState, found: Pieces) -> None:
    recent = sorted((read_recent(*entry) for entry in found.recent.items()), key=lambda entry: entry[0])
    for ordinal, verdict in recent:
        state.recent[verdict.id] = verdict
        if state.could_fit(verdict):
            state.refused[verdict.id] = (verdict.seq, ordinal)
        else:
            state.settled[verdict.id] = ordinal
    used = [read_key(*entry) for entry in found.keys.items()]
    for name, key in sorted(used, key=lambda pair: (pair[1].ordinal, pair[1].seq)):
        state.keys[name] = key
