"""The contract's rules about one surface or offload event: functions of values, in the order of their use."""

from bisect import bisect_left
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import Any, NoReturn

import msgspec
from msgspec import UNSET

from surfacelog.body import Blocks, Json
from surfacelog.contract import Contract
from surfacelog.errors import ContractError
from surfacelog.events import SAFE_INTEGER
from surfacelog.lossless import storable
from surfacelog.node import Node
from surfacelog.places import Places
from surfacelog.tools import ToolTable

__all__ = [
    "Span",
    "Target",
    "check_head",
    "check_header",
    "check_local",
    "check_rewrite",
    "check_sources",
    "check_span",
    "check_targets",
    "find_span",
    "position_of",
    "read_op",
    "read_targets",
]

_NEAR = 64
_FEW = 32
_OFFLOADABLE = frozenset({"user/message", "tool/result"})


class Span(msgspec.Struct, frozen=True, gc=False):
    """The range of a replace, as seqs of nodes."""

    start: int
    end: int


class Target(msgspec.Struct, frozen=True, gc=False):
    """One target of an image offload."""

    seq: int
    indexes: tuple[Any, ...]


def _refuse(code: str, message: str) -> NoReturn:
    raise ContractError(code, message)


def _is_seq(value: Any) -> bool:
    return type(value) is int and 0 <= value <= SAFE_INTEGER


def check_local(
    kind: str, data: dict[str, Json], message: dict[str, Json], blocks: Blocks, kinds: list[Json]
) -> None:
    """The rules about a message's own data. `kinds`: the types of the blocks."""
    if kind == "developer/message":
        _check_developer(data, message, blocks)
        return
    if message.get("role") == "developer":
        _refuse("developer-role", "the role developer belongs to developer/message")
    if "tool-addition" in kinds or "tool-removal" in kinds:
        _refuse("tool-change-role", "tools are added and removed only in a developer/message")
    if kind == "tool/result" and "error" in data and message.get("isError") is not True:
        _refuse("tool-error-flag", "a result with data.error needs message.isError true")


def _check_developer(data: dict[str, Json], message: dict[str, Json], blocks: Blocks) -> None:
    if message.get("role") != "developer":
        _refuse("developer-role", "the role of a developer/message is developer")
    adds = False
    for block in blocks:
        if block.get("type") not in ("tool-addition", "tool-removal"):
            continue
        name = block.get("toolName")
        if type(name) is not str or not name:
            _refuse("tool-change-name", "a tool addition or removal needs a toolName")
        if block["type"] == "tool-addition":
            adds = True
            if "tool" in block:
                _refuse("tool-addition-inline", "an addition names its tool; the header in headerSeq defines it")
    if not (_is_seq(data.get("headerSeq")) if adds else "headerSeq" not in data):
        _refuse("developer-header-seq", "headerSeq names the request/header of tool additions, and only of them")


def read_op(op: Json, seq: int, kind: str, contract: Contract) -> Span | None:
    """The range of a replace; None for an append. `op` is the value of surfaceOp."""
    if op == "append":
        return None
    if op is UNSET:
        _refuse("surface-op-required", f"{kind} comes onto the surface; say how with surfaceOp")
    if type(op) is not dict:
        _refuse("surface-op-invalid", 'surfaceOp is "append" or a replace')
    start: Any = op.get(contract.start)
    end: Any = op.get(contract.end)
    if len(op) != 3 or op.get("op") != "replace" or not _is_seq(start) or not _is_seq(end):
        _refuse("replace-op-invalid", f'a replace is {{"op":"replace","{contract.start}":…,"{contract.end}":…}}')
    if contract.strict and (start >= seq or end >= seq):
        _refuse("replace-not-earlier", "both ends of a replace are earlier than its own seq")
    return Span(start, end)


def check_sources(sources: Json, seq: int, kind: str, contract: Contract) -> None:
    """`sources` is the value of sourceEventSeqs."""
    if type(sources) is list and len(sources) == 1 and type(sources[0]) is int and 0 <= sources[0] < seq:
        # One earlier source, as nearly every tool result has it.
        if kind != "assistant/message":
            return
    assistant = kind == "assistant/message"
    if assistant and contract.strict:
        _refuse("sources-on-assistant", "an assistant/message embeds its stream; leave sourceEventSeqs out")
    if type(sources) is not list:
        _refuse("sources-not-array", "sourceEventSeqs is a list of seqs")
    if not sources and not assistant:
        _refuse("sources-empty", "leave sourceEventSeqs out when there are none")
    for source in sources:
        if type(source) is not int or not 0 <= source <= SAFE_INTEGER:
            _refuse("sources-not-seqs", "sourceEventSeqs is a list of seqs")
    if len(sources) > 1 and len(set(sources)) != len(sources):
        _refuse("sources-duplicate", "sourceEventSeqs names each seq once")
    if sources and max(sources) >= seq:
        _refuse("sources-not-earlier", "sources are earlier than the event")


def check_header(data: dict[str, Json], blocks: Blocks, headers: Mapping[int, ToolTable]) -> None:
    """A tool addition's header is there and defines the tool once and completely."""
    if "headerSeq" not in data:
        return
    table = headers.get(data["headerSeq"])
    if table is None:
        _refuse("developer-header-missing", f"seq {data['headerSeq']} is no earlier request/header")
    for block in blocks:
        if block.get("type") != "tool-addition":
            continue
        name = block.get("toolName")
        state = table.tools.get(storable(name)) if type(name) is str else None
        if state is None or state == "double":
            _refuse("developer-tool-unknown", f"the header does not define {name!a} exactly once")
        if state == "incomplete":
            _refuse("developer-tool-incomplete", f"the header defines {name!a} incompletely")


def position_of(seq: int, seqs: Sequence[int]) -> int:
    """Where the node stands on the surface, or -1. Most ranges lie near the end, so that is searched first."""
    behind = len(seqs) - _NEAR
    try:
        return seqs.index(seq, behind) if behind > 0 else seqs.index(seq)
    except ValueError:
        pass
    try:
        return seqs.index(seq, 0, max(behind, 0))
    except ValueError:
        return -1


def find_span(span: Span, find: Callable[[int], int]) -> tuple[int, int]:
    """First and last position of the range on the current surface: by place, never by number. `find`: the position
    of a seq, or -1."""
    first = find(span.start)
    if first < 0:
        _refuse("replace-start-missing", f"seq {span.start} is not on the current surface")
    last = first if span.end == span.start else find(span.end)
    if last < 0:
        _refuse("replace-end-missing", f"seq {span.end} is not on the current surface")
    if first > last:
        _refuse("replace-range-reversed", f"seq {span.start} stands behind seq {span.end} on the surface")
    return first, last


def check_span(span: Span, sources: Json, places: Places, entries: Sequence[Node]) -> tuple[int, tuple[Node, ...]]:
    """(position, nodes) of the range on the current surface, all of them among the sources (UNSET: there are
    none)."""
    position, last = find_span(span, places.find)
    if position == last and sources == [span.start]:
        return position, (entries[position],)
    shadowed = places.seqs[position : last + 1]
    missing = () if sources == shadowed else set(shadowed).difference(() if sources is UNSET else sources)
    if missing:
        _refuse("sources-incomplete", f"sourceEventSeqs lacks shadowed nodes, first {min(missing)}")
    return position, tuple(entries[position : last + 1])


def check_rewrite(digest: str, removed: Sequence[Node]) -> None:
    """A tool result replaces one tool result, and changes nothing but its content."""
    if len(removed) != 1:
        _refuse("tool-rewrite-not-single", "a tool/result replaces exactly one node")
    if removed[0].type != "tool/result":
        _refuse("tool-rewrite-wrong-target", f"seq {removed[0].seq} is no tool/result")
    if removed[0].digest != digest:
        _refuse("tool-rewrite-changes-more", "a rewritten tool/result differs in content only")


def check_head(kind: str, removed: Sequence[Node]) -> None:
    """A system prompt at the head, where `removed` begins, gives way only to another one, alone."""
    if removed[0].type == "system/message":
        if kind != "system/message" or len(removed) != 1:
            _refuse("system-head-protected", "the system/message at the head is replaced alone, by another")


def read_targets(data: Json) -> list[Target]:
    """The targets of an `image/offload`, their shape checked."""
    targets = data.get("targets") if type(data) is dict else None
    if type(targets) is not list or not targets:
        _refuse("offload-targets-invalid", "data.targets is a non-empty list")
    found = []
    for target in targets:
        if type(target) is not dict or target.keys() != {"seq", "imageIndexes"}:
            _refuse("offload-target-invalid", "a target is {seq, imageIndexes}")
        seq, indexes = target["seq"], target["imageIndexes"]
        if not _is_seq(seq) or type(indexes) is not list or not indexes:
            _refuse("offload-target-invalid", "a target is {seq, imageIndexes}, with at least one index")
        found.append(Target(seq, tuple(indexes)))
    return found


def check_targets(
    targets: Sequence[Target], places: Places, entries: Sequence[Node]
) -> tuple[tuple[int, Node, Node], ...]:
    """(position, old, new) of every node that the offload rewrites."""
    changed = []
    seen: set[int] = set()
    for target in targets:
        seq, indexes = target.seq, target.indexes
        if seq in seen:
            _refuse("offload-target-duplicate", f"seq {seq} is named twice")
        seen.add(seq)
        position = places.find(seq)
        if position < 0:
            _refuse("offload-target-not-on-surface", f"seq {seq} is not on the current surface")
        old = entries[position]
        if old.type not in _OFFLOADABLE:
            _refuse("offload-target-wrong-type", f"seq {seq} is neither a user/message nor a tool/result")
        if not all(map(_is_seq, indexes)) or any(a >= b for a, b in pairwise(indexes)):
            _refuse("offload-indexes-invalid", "imageIndexes are non-negative and strictly increasing")
        offloaded = _joined(old.offloaded, indexes)
        if offloaded is None:
            _refuse("offload-already", f"an image of seq {seq} is offloaded already")
        if indexes[-1] >= old.images:
            _refuse("offload-image-missing", f"seq {seq} has {old.images} images")
        changed.append((position, old, msgspec.structs.replace(old, offloaded=offloaded)))
    return tuple(changed)


def _joined(old: tuple[int, ...], new: tuple[int, ...]) -> tuple[int, ...] | None:
    """Both in order; None when they share an index."""
    if len(old) < _FEW * len(new):
        return tuple(sorted((*old, *new))) if set(old).isdisjoint(new) else None
    # Images are offloaded one by one from messages of many: the others are only copied, not looked at.
    joined = list(old)
    for index in new:
        place = bisect_left(joined, index)
        if place < len(joined) and joined[place] == index:
            return None
        joined.insert(place, index)
    return tuple(joined)
