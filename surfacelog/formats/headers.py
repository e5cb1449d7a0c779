"""Header rows of stored logs, and the session header that each one means. Fields that have no place in it are
left out with a notice, never in silence."""

from typing import Any

import msgspec

from surfacelog.errors import ProtocolError
from surfacelog.header import Header

__all__ = ["CONTRACTS", "Notice", "read_log_header"]

# Stored formats and the contract that each was written under.
CONTRACTS = {4: "v4", 0: "v0"}
# What a log's first row may say besides the fields of a session header.
ENVELOPE = frozenset({"type"})
# Fields that decide what is accepted: they come from the format, never from the row.
DECIDED = frozenset({"contract", "checks", "vocabulary", "rules"})


class Notice(msgspec.Struct, frozen=True, omit_defaults=True):
    """Something that a reader left out. `code`: torn-row, torn-frame or header-field. `row`: counted from 0."""

    code: str
    text: str
    row: int = 0


def read_log_header(row: bytes) -> tuple[Header, int, list[Notice]]:
    """The session header, the format's version, and what was left out. Raises ProtocolError malformed."""
    try:
        fields = msgspec.json.decode(row, type=dict[str, Any])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError("malformed", f"the header row cannot be read ({error})") from None
    version = fields.get("version")
    if isinstance(version, bool) or not isinstance(version, int) or version not in CONTRACTS:
        known = " and ".join(str(number) for number in sorted(CONTRACTS))
        raise ProtocolError("malformed", f"format version {version!r} is not known; {known} can be read")
    notices = []
    kept: dict[str, Any] = {}
    for name, value in fields.items():
        if name in ENVELOPE or (name in _FIELDS and name not in DECIDED and _fits(name, value)):
            kept[name] = value
        else:
            shown = msgspec.json.encode(value).decode()[:200]
            notices.append(
                Notice("header-field", f"the header field {name} = {shown} has no place and was left out")
            )
    kept.pop("type", None)
    try:
        header = msgspec.convert({**kept, "contract": CONTRACTS[version]}, Header)
    except msgspec.ValidationError as error:
        raise ProtocolError("malformed", f"the header row lacks what a session needs ({error})") from None
    return header, version, notices


_FIELDS = {field.encode_name: field for field in msgspec.structs.fields(Header)}


def _fits(name: str, value: Any) -> bool:
    if _FIELDS[name].required:
        # A required field that does not fit is an error, not a notice.
        return True
    try:
        msgspec.convert(value, _FIELDS[name].type)
    except msgspec.ValidationError:
        return False
    return True
