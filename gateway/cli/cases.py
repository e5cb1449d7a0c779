"""Failure cases, run offline: each `op` gives what came, and every expectation of it is compared or named.

Where a case leaves two answers open (`expect.ours`), the first must hold, or the second as a whole.
"""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.cli.case_file import read_case
from gateway.cli.case_ops import OPERATIONS, Finding
from gateway.cli.outcome import Outcome, Problem
from surfacelog.errors import LedgerError

__all__ = ["check_case"]

# Words about a case, not expectations of it.
PROSE = frozenset({"decides", "rule", "ours", "why", "alsoRefuse", "note", "steps", "expected"})


def check_case(text: bytes, source: str) -> Outcome:
    """Runs one case file. A file that is no case fails with what is wrong about it."""
    try:
        case = read_case(text)
    except (LedgerError, ValueError) as error:
        return Outcome(source, source, "case", problems=[Problem("case", "a case", str(error))]).settle()
    outcome = Outcome(case.id or source, source, case.op)
    run = OPERATIONS.get(case.op)
    if run is None:
        outcome.outcome, outcome.reason = "skipped", f"{case.op} needs a service"
        return outcome
    try:
        found = run(case)
    except LedgerError as error:
        outcome.problems = [Problem(case.op, "a case that can be run", str(error))]
        return outcome.settle()
    except AssertionError as error:
        outcome.problems = [Problem(case.op, "one answer on every path", str(error))]
        return outcome.settle()
    except Exception as error:
        # A stranger's case must not end the whole run; what broke is told on its line.
        outcome.problems = [Problem(case.op, "an answer", f"{type(error).__name__}: {error}")]
        return outcome.settle()
    expectations = {name: value for name, value in case.expect.items() if name not in PROSE}
    outcome.problems, outcome.unchecked = _compare(expectations, found)
    ours = case.expect.get("ours")
    if outcome.problems and isinstance(ours, dict):
        second, _ = _compare(_second(expectations, ours), found)
        if not second:
            outcome.problems, outcome.ours = [], True
    if expectations and len(outcome.unchecked) == len(expectations) and not found.problems:
        outcome.outcome, outcome.reason = "skipped", f"{case.op} expects only {', '.join(outcome.unchecked)}"
    return outcome.settle()


def _second(expectations: Mapping[str, Any], ours: Mapping[str, Any]) -> dict[str, Any]:
    merged = {**expectations, **{name: value for name, value in ours.items() if name in expectations}}
    if "refuseAt" in ours:
        merged["session"] = f"refuse@{ours['refuseAt']}"
    if str(merged.get("lines", "")).startswith("refuse"):
        # Nothing is kept of rows that are refused as a whole.
        merged.pop("kept", None)
    return merged


def _compare(expectations: Mapping[str, Any], found: Finding) -> tuple[list[Problem], list[str]]:
    problems = list(found.problems)
    unchecked = []
    for name, expected in expectations.items():
        check: Callable[[Any], list[Problem]] | None = found.checks.get(name)
        if check is None:
            unchecked.append(name)
        else:
            problems += check(expected)
    return problems, unchecked
