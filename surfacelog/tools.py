"""The tools that a `request/header` defines, as far as later developer messages depend on them."""

from collections.abc import Mapping
from hashlib import blake2b
from typing import Any

import msgspec

from surfacelog.errors import ContractError
from surfacelog.lossless import canonical, read_again, storable

__all__ = ["NO_TOOLS", "ToolTable", "table_of"]

MEMO_COUNT = 32
MEMO_BYTES_MAX = 128 * 1024


class ToolTable(msgspec.Struct, frozen=True, gc=False):
    """The tools that a `request/header` defines. `digest` (hex) names the table; `tools` maps a name to
    "complete", "incomplete" or "double"."""

    digest: str
    tools: Mapping[str, str]


def _table(tools: dict[str, str]) -> ToolTable:
    return ToolTable(blake2b(canonical(tools), digest_size=16).hexdigest(), tools)


NO_TOOLS = _table({})
# A client sends the same header with every request: data of 20 KB that is equal to the last is not read again.
# Shared by all sessions of the process, which is sound: a table depends on nothing but the bytes that it is known
# by. At most 32 texts of 128 KB.
_memo: dict[int, tuple[bytes, ToolTable]] = {}


def table_of(data: Any, *, checked: bool = True) -> ToolTable:
    """The table of a `request/header` event's data, given as a value or as bytes; raises ContractError with the
    rule that it breaks, unless `checked` is off."""
    if type(data) is not bytes:
        return _read_table(data, checked)
    known = _memo.get(len(data))
    if known is not None and known[0] == data:
        return known[1]
    table = _read_table(read_again(data), checked)
    if checked and len(data) <= MEMO_BYTES_MAX:
        if len(_memo) >= MEMO_COUNT:
            _memo.clear()
        _memo[len(data)] = (data, table)
    return table


def _read_table(value: Any, checked: bool) -> ToolTable:
    header = value.get("header") if type(value) is dict else None
    if type(header) is not dict:
        return NO_TOOLS
    if checked:
        _check_header(header)
    tools = header.get("tools")
    found: dict[str, str] = {}
    for tool in tools if type(tools) is list else ():
        name = tool.get("name") if type(tool) is dict else None
        if type(name) is str:
            name = storable(name)
            found[name] = "double" if name in found else _completeness(tool)
    return _table(found) if found else NO_TOOLS


def _check_header(header: dict[str, Any]) -> None:
    if "system" in header:
        raise ContractError("header-system", "the system prompt is a system/message; leave header.system out")
    if header.get("tools") == []:
        raise ContractError("header-empty-tools", "leave header.tools out when there are none")
    if header.get("adapterDefaults") == {}:
        raise ContractError("header-empty-defaults", "leave header.adapterDefaults out when there are none")


def _completeness(tool: dict[str, Any]) -> str:
    whole = (
        type(tool.get("description")) is str
        and type(tool.get("parameters")) is dict
        and tool.get("deferLoading", True) is True
    )
    return "complete" if whole else "incomplete"
