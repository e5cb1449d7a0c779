"""Windows, nodes and places of a session as a cache keeps them: in few bytes, since each session carries hundreds.

Entries stay within 64 bytes where they can: Redis keeps small hashes of such entries in a third of the space.
"""

from collections.abc import Iterable

import msgspec

from surfacelog.node import Node
from surfacelog.state import UsedKey
from surfacelog.verdict import Verdict

__all__ = [
    "PLACE_BYTES",
    "Place",
    "entry_field",
    "key_entry",
    "place_entry",
    "read_key",
    "read_places",
    "read_recent",
    "recent_entry",
    "rows_of",
]

# One commit in the `offsets` string: first seq and offset, 8 bytes each, big-endian.
PLACE_BYTES = 16
Place = tuple[int, int]
_OUTCOMES = ("accepted", "rejected", "duplicate")
_PLACE = {outcome: place for place, outcome in enumerate(_OUTCOMES)}
_UUID, _HEX, _TEXT = b"\x00", b"\x01", b"\x02"
_encode = msgspec.msgpack.Encoder().encode
_json = msgspec.json.Encoder().encode


class _Recent(msgspec.Struct, array_like=True, gc=False):
    ordinal: int
    outcome: int
    seq: int
    count: int
    offset: int
    next_seq: int
    chain: bytes
    code: str = ""
    message: str = ""
    first: str = ""
    epoch: int = 0


class _Used(msgspec.Struct, array_like=True, gc=False):
    request: bytes
    seq: int
    count: int
    offset: int
    id: bytes
    ordinal: int


_recent = msgspec.msgpack.Decoder(_Recent)
_used = msgspec.msgpack.Decoder(_Used)
_DEFAULTS = tuple(field.default for field in msgspec.structs.fields(Node))


def place_entry(seq: int, offset: int) -> bytes:
    """One commit as the `offsets` string holds it."""
    return seq.to_bytes(8, "big") + offset.to_bytes(8, "big")


def read_places(entries: bytes) -> list[Place]:
    """(first seq, offset) of each whole commit in a piece of `offsets`."""
    numbers = [int.from_bytes(entries[at : at + 8], "big") for at in range(0, len(entries) - 7, 8)]
    return list(zip(numbers[::2], numbers[1::2], strict=False))


def entry_field(text: str) -> bytes:
    """A UUID or a hex digest in half of its bytes; any other text as it is. Injective."""
    try:
        if len(text) == 36 and text[8] == text[13] == text[18] == text[23] == "-":
            plain = text.replace("-", "")
            raw = bytes.fromhex(plain)
            if len(raw) == 16 and raw.hex() == plain:
                return _UUID + raw
        elif len(text) == 32:
            raw = bytes.fromhex(text)
            if raw.hex() == text:
                return _HEX + raw
    except ValueError:
        pass
    return _TEXT + text.encode()


def _unpack(packed: bytes) -> str:
    kind, rest = packed[:1], packed[1:]
    if kind == _TEXT:
        return rest.decode()
    text = rest.hex()
    if kind == _HEX:
        return text
    if kind != _UUID or len(rest) != 16:
        raise ValueError("the name of an entry cannot be read")
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


def recent_entry(ordinal: int, verdict: Verdict) -> tuple[bytes, bytes]:
    """(field, value) of one verdict in the `recent` hash."""
    told = [
        ordinal,
        _PLACE[verdict.outcome],
        verdict.seq,
        verdict.count,
        verdict.offset,
        verdict.next_seq,
        verdict.chain,
    ]
    if verdict.code or verdict.message or verdict.first or verdict.epoch:
        told += (verdict.code, verdict.message, verdict.first)
    if verdict.epoch:
        told.append(verdict.epoch)
    return entry_field(verdict.id), _encode(told)


def read_recent(field: bytes, value: bytes) -> tuple[int, Verdict]:
    """(ordinal, verdict) of a `recent` entry; raises msgspec.MsgspecError, ValueError or IndexError."""
    told = _recent.decode(value)
    return told.ordinal, Verdict(
        _OUTCOMES[told.outcome],
        _unpack(field),
        told.code,
        told.seq,
        told.count,
        told.offset,
        told.next_seq,
        told.chain,
        told.first,
        told.message,
        told.epoch,
    )


def key_entry(key: str, used: UsedKey) -> tuple[bytes, bytes]:
    """(field, value) of one used key in the `keys` hash."""
    told = (entry_field(used.request), used.seq, used.count, used.offset, entry_field(used.id), used.ordinal)
    return entry_field(key), _encode(told)


def read_key(field: bytes, value: bytes) -> tuple[str, UsedKey]:
    """(key digest, used key) of a `keys` entry; raises msgspec.MsgspecError or ValueError."""
    told = _used.decode(value)
    request, name = _unpack(told.request), _unpack(told.id)
    return _unpack(field), UsedKey(request, told.seq, told.count, told.offset, name, told.ordinal)


def rows_of(nodes: Iterable[Node]) -> bytes:
    """Nodes as the rows that `surface` holds: JSON arrays without the defaults at their end."""
    rows: list[bytes] = []
    for node in nodes:
        fields = msgspec.structs.astuple(node)
        if fields[2:] == _DEFAULTS[2:]:
            rows.append(_json(fields[:2]))
            continue
        last = len(fields)
        while last > 2 and fields[last - 1] == _DEFAULTS[last - 1]:
            last -= 1
        rows.append(_json(fields[:last]))
    rows.append(b"")
    return b"\n".join(rows)
