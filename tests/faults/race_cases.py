"""The given failure cases that need real servers, told apart by what they contain, never by their ids.

SURFACELOG_TEST_CASES may name one more folder of cases.
"""

import json
import os
from pathlib import Path
from typing import Any

from gateway.cli.cases import check_case
from surfacelog.events import Draft
from surfacelog.session import draft

__all__ = ["OPS", "as_draft", "as_given", "bare", "kind_of", "race_cases", "surface_of"]

OPS = ("race", "scale")
GIVEN = Path(__file__).resolve().parents[1] / "contract" / "cases"

# What a case must bring, and the kind that it is then. The first that fits names it.
_KINDS: tuple[tuple[str, str], ...] = (
    ("killAfterCommand", "kill"),
    ("delivered", "delivery"),
    ("client", "tail"),
    ("calls", "repeat"),
    ("sessionIds", "ids"),
)


def race_cases() -> list[Path]:
    """The files of all cases of these operations."""
    folders = [GIVEN] + [Path(more) for more in [os.environ.get("SURFACELOG_TEST_CASES", "")] if more]
    found = [path for folder in folders for path in sorted(folder.glob("*.json")) if _op(path) in OPS]
    return list({path.name: path for path in found}.values())


def _op(path: Path) -> str | None:
    told = json.loads(path.read_bytes())
    return told.get("op") if isinstance(told, dict) else None


def kind_of(case: dict[str, Any]) -> str:
    """Which runner proves the case, or an empty string."""
    for field, kind in _KINDS:
        if field in case:
            return kind
    wanted = case.get("generate", {})
    if "encodedBytes" in wanted:
        return "sizes"
    if "parallel" in wanted:
        return "parallel"
    if "events" in case:
        return "stale" if "refuseAt" in case["expect"].get("ours", {}) else "resume"
    return ""


def as_given(case: dict[str, Any], **expect: Any) -> None:
    """The case's events, loaded as a log, are refused or taken as it says; `expect` in place of the case's own."""
    wanted = expect or {
        name: case["expect"][name] for name in ("fold", "session", "lifecycle") if name in case["expect"]
    }
    found = check_case(json.dumps(case | {"op": "load", "expect": wanted}).encode(), case["id"])
    assert (found.outcome, [str(problem) for problem in found.problems]) == ("passed", []), found


def bare(event: dict[str, Any]) -> dict[str, Any]:
    """An event as a client offers it: the ledger gives the seq."""
    return {name: value for name, value in event.items() if name != "seq"}


def as_draft(event: dict[str, Any]) -> Draft:
    """The same for the producer."""
    more = {}
    if "surfaceOp" in event:
        more["surface_op"] = event["surfaceOp"]
    if "sourceEventSeqs" in event:
        more["source_event_seqs"] = event["sourceEventSeqs"]
    return draft(event["type"], event["data"], time=event["time"], **more)


def surface_of(events: list[dict[str, Any]]) -> list[int]:
    """The nodes of an append-only piece of a case."""
    return [event["seq"] for event in events if event.get("surfaceOp") == "append"]
