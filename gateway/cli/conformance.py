"""`surfacelog conformance`: runs vectors and failure cases offline against the core. Needs no server."""

import sys
from collections.abc import Iterator
from json import dumps
from pathlib import Path

import msgspec

from gateway.cli.cases import check_case
from gateway.cli.input_file import read_file
from gateway.cli.outcome import Outcome
from gateway.cli.vectors import check_vector

__all__ = ["check_paths", "conformance"]

# More than this on the line of one failing case hides what failed.
PROBLEMS_SHOWN = 3


def conformance(*paths: Path, json: bool = False) -> int:
    """Run conformance vectors (.jsonl) and failure cases (.json), or folders of them, against this build.

    Prints one line for each failing case and a summary. Exits with 1 when any fails, 2 when a path cannot be read.

    Parameters
    ----------
    paths
        Files or folders.
    json
        Print everything as one JSON object.
    """
    try:
        if not paths:
            raise OSError("name at least one file or folder")
        outcomes = check_paths(*paths)
    except OSError as error:
        told = f"{error.filename} cannot be read: {error.strerror}" if error.filename else str(error)
        print(f"surfacelog: {told}", file=sys.stderr)
        return 2
    if json:
        print(dumps({**_summary(outcomes), "results": msgspec.to_builtins(outcomes)}))
    else:
        _print(outcomes)
    return 1 if any(outcome.outcome == "failed" for outcome in outcomes) else 0


def check_paths(*paths: Path) -> list[Outcome]:
    """What checking all vectors and cases under `paths` found; raises OSError for a path that cannot be read or
    holds none."""
    outcomes = []
    for path in paths:
        found = [outcome for file in _files(path) for outcome in _check_file(file)]
        if not found:
            raise OSError(f"{path}: no vectors (.jsonl) or cases (.json) there")
        outcomes += found
    return outcomes


def _files(path: Path) -> list[Path]:
    """The path itself, or the vectors and cases of a folder, in order of their names."""
    if not path.is_dir():
        return [path]
    found = [file for file in path.rglob("*") if file.suffix in (".json", ".jsonl") and file.is_file()]
    return sorted(file for file in found if not file.name.endswith(".expect.json"))


def _check_file(file: Path) -> Iterator[Outcome]:
    data = read_file(file)
    if file.suffix != ".jsonl":
        yield check_case(data, str(file))
        return
    lines = data.split(b"\n")
    vectors = [(number, line) for number, line in enumerate(lines, 1) if line.strip()]
    for number, line in vectors:
        yield check_vector(line, f"{file}:{number}")


def _summary(outcomes: list[Outcome]) -> dict[str, int]:
    counts = dict.fromkeys(("passed", "failed", "skipped"), 0)
    for outcome in outcomes:
        counts[outcome.outcome] += 1
    return counts | {"unchecked": sum(len(outcome.unchecked) for outcome in outcomes)}


def _print(outcomes: list[Outcome]) -> None:
    for outcome in outcomes:
        if outcome.outcome == "failed":
            shown = [str(problem) for problem in outcome.problems[:PROBLEMS_SHOWN]]
            more = len(outcome.problems) - len(shown)
            tail = f"; and {more} more" if more else ""
            print(f"FAILED {outcome.id} ({outcome.source}): {'; '.join(shown)}{tail}")
        elif outcome.outcome == "skipped":
            print(f"skipped {outcome.id}: {outcome.reason}")
        if outcome.unchecked and outcome.outcome != "skipped":
            print(f"note: {outcome.id} also expects {', '.join(outcome.unchecked)}, which is not checked here")
    counts = _summary(outcomes)
    print(f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped")
