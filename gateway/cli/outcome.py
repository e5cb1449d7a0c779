"""What checking one vector or case found, and values compared strictly: true is not 1, order counts."""

from typing import Any

import msgspec

__all__ = ["Outcome", "Problem", "compare", "same", "shown"]

SHOWN_MAX = 160


class Problem(msgspec.Struct, frozen=True):
    """An expectation that does not hold."""

    what: str
    expected: Any
    got: Any

    def __str__(self) -> str:
        return f"{self.what}: expected {shown(self.expected)}, got {shown(self.got)}"


class Outcome(msgspec.Struct):
    """`outcome`: passed, failed or skipped. `reason`: why it was skipped. `unchecked`: expectations that are not
    understood. `ours`: the case leaves two answers open, and its second one holds."""

    id: str
    source: str
    op: str
    outcome: str = "passed"
    reason: str = ""
    problems: list[Problem] = []
    unchecked: list[str] = []
    ours: bool = False

    def settle(self) -> "Outcome":
        """Failed when there are problems."""
        if self.problems:
            self.outcome = "failed"
        return self


def compare(what: str, expected: Any, got: Any) -> list[Problem]:
    """One problem unless the two are the same."""
    return [] if same(expected, got) else [Problem(what, expected, got)]


def same(one: Any, other: Any) -> bool:
    """JSON equality: 1 and 1.0 are the same number, 1 and true are not; the order of keys does not count."""
    if isinstance(one, bool) or isinstance(other, bool):
        return one is other
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(value, other[key]) for key, value in one.items())
    if isinstance(one, list | tuple) and isinstance(other, list | tuple):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == other)


def shown(value: Any) -> str:
    """The value on one short line."""
    try:
        text = value if isinstance(value, str) else msgspec.json.encode(value).decode()
    except (TypeError, ValueError):
        text = repr(value)
    text = text.encode("utf-8", "backslashreplace").decode().replace("\n", " ")
    return text if len(text) <= SHOWN_MAX else text[: SHOWN_MAX - 1] + "…"
