"""A session as the cache shows it against its fold from the log: the first thing that differs. Pure."""

from collections.abc import Collection

import msgspec

from producer.state_reader import StateView
from projector.refold import Refold
from surfacelog.snapshot import Pieces, pieces

__all__ = ["Shown", "Told", "compare"]

# What differs, in words, and the offset of the record where it shows (-1: not one record's).
Told = tuple[str, str, int]


class Shown(msgspec.Struct, frozen=True):
    """What the cache holds of a session at one moment. `commits`: (seq, offset) of the accepted ones."""

    view: StateView
    messages: list[bytes]
    transcript: list[int]
    commits: list[tuple[int, int]]


def compare(fold: Refold | None, shown: Shown, offsets: Collection[int], stopped: bool = False) -> Told | None:
    """None when they are the same. `offsets`: of all records of the session that the log has. `stopped`: the fold
    was taken to the fault that the cache knows and no further, so its state is the one to be served."""
    if fold is None or (fold.state.status == "absent" and fold.fault is None):
        return "no-session", "the cache has it, but the log does not open it", -1
    entry = shown.view.entry
    if entry is None:
        return "directory", "the log opens it, but the directory does not know it", -1
    if entry.status == "faulted" or fold.fault is not None:
        at = -1 if fold.fault is None else fold.fault[1]
        if entry.status != "faulted" or entry.at != at:
            return "faulted", "parked by one of cache and log only; retry it", max(at, entry.at)
        if not stopped or fold.state.status == "absent":
            return None
    return _commits(fold, shown, offsets) or _state(fold, shown) or _lists(fold, shown)


def _commits(fold: Refold, shown: Shown, offsets: Collection[int]) -> Told | None:
    if fold.state.status != "open":
        return None
    ours, theirs = fold.commits, shown.commits
    for index, (seq, offset) in enumerate(theirs):
        if index < len(ours) and ours[index] == (seq, offset):
            continue
        if offset not in offsets:
            return "record", f"the log no longer has the commit of seq {seq}", offset
        return "commit", f"seq {seq} was accepted, and now is not: a record here or before was changed", offset
    if len(theirs) < len(ours):
        seq, offset = ours[len(theirs)]
        return "commit", f"the log accepts the commit of seq {seq}, which the cache lacks", offset
    return None


def _state(fold: Refold, shown: Shown) -> Told | None:
    state = shown.view.state
    if state is None:
        return "lost", "a key of the session is missing, or contradicts the others", -1
    if state.chain != fold.state.chain:
        ours, theirs = fold.state.chain.hex()[:16], state.chain.hex()[:16]
        last = fold.commits[-1][1] if fold.commits else -1
        return (
            "chain",
            f"the log gives {ours}…, the cache has {theirs}…: a record here or before was changed",
            last,
        )
    piece = _differs(pieces(state), pieces(fold.state))
    return (piece, "not what the log gives", -1) if piece else None


def _lists(fold: Refold, shown: Shown) -> Told | None:
    if fold.state.status != "open":
        return None
    if shown.messages != fold.messages:
        return "messages", f"message {_first(shown.messages, fold.messages)} is not what the log gives", -1
    if shown.transcript != fold.transcript:
        return "transcript", f"entry {_first(shown.transcript, fold.transcript)} is not what the log gives", -1
    return None


def _first(found: list[bytes] | list[int], wanted: list[bytes] | list[int]) -> int:
    pairs = zip(found, wanted, strict=False)
    return next((index for index, (a, b) in enumerate(pairs) if a != b), min(len(found), len(wanted)))


def _differs(found: Pieces, wanted: Pieces) -> str:
    for field, value in wanted.meta.items():
        if found.meta.get(field) != value:
            return f"meta {field.decode()}"
    for name in ("surface", "headers", "tools", "recent", "keys"):
        if getattr(found, name) != getattr(wanted, name):
            return name
    return ""
