"""Short forms that failure cases write: verdicts such as `refuse@4`, closers such as `tool/result B UNKNOWN`."""

import re
from collections.abc import Callable
from typing import Any

from msgspec import UNSET

from gateway.cli.outcome import Problem
from surfacelog.events import Event, read_data
from surfacelog.lifecycle import result_call_id

__all__ = ["closer_form", "verdict_check", "words"]

_VERDICT = re.compile(r"(ok)|refuse(?:@(\d+))?")


def verdict_check(name: str, refused_at: int | None, why: str) -> Callable[[Any], list[Problem]]:
    """A check of `ok`, `refuse` or `refuse@index` against the index that was refused, or None."""

    def check(expected: Any) -> list[Problem]:
        form = _VERDICT.fullmatch(expected) if isinstance(expected, str) else None
        got = "ok" if refused_at is None else f"refuse@{refused_at} ({why})"
        if form is None:
            return [Problem(name, "ok, refuse or refuse@index", expected)]
        accepted, place = form.groups()
        if accepted:
            holds = refused_at is None
        else:
            holds = refused_at is not None and place in (None, str(refused_at))
        return [] if holds else [Problem(name, expected, got)]

    return check


def closer_form(event: Event) -> list[Any]:
    """`[type]`, or `[tool/result, call id, code, sources]` with the sources only when there are any."""
    if event.type != "tool/result":
        return [event.type]
    data = read_data(event.data)
    form = [event.type, result_call_id(data["message"]), data["error"]["code"]]
    if event.source_event_seqs is not UNSET:
        form.append(read_data(event.source_event_seqs))
    return form


def words(event: Event) -> str:
    """The closer in words: its type, and for a result its call id and code without the `TOOL_` before it."""
    kind, *rest = closer_form(event)
    if not rest:
        return str(kind)
    short = rest[1].removeprefix("TOOL_").removeprefix("OUTCOME_")
    return f"{kind} {rest[0]} {short}"
