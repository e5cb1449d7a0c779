"""`surfacelog-sim`: runs seeds until one breaks a promise of the ledger, and shows how it came to that."""

import sys
import time
from collections import Counter
from contextlib import nullcontext
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.progress import track

from gateway.cli.outlet import Screen, quietly_unread
from sim.run import Outcome, run_seed
from sim.switches import SWITCHES, switched_off

__all__ = ["main", "simulate_seeds"]

app = App(name="surfacelog-sim", help=__doc__, version_flags=[])
TRACE_LINES = 400


class Report(msgspec.Struct, frozen=True, kw_only=True):
    """`seeds`: how many were run. `failed`: the first seed that broke a promise, None if none did."""

    first: int
    seeds: int
    seconds: float
    simulated_seconds: float
    steps: int
    answers: dict[str, int]
    switched_off: str | None
    failed: int | None
    findings: list[str]


@app.default
def simulate_seeds(
    *,
    seeds: Annotated[int, Parameter(help="how many runs", validator=Number(gte=1))] = 2_000,
    first: Annotated[int, Parameter(help="the first seed; each run has the next one")] = 0,
    switch_off: Annotated[str | None, Parameter(help=f"a rule to do without: {', '.join(SWITCHES)}")] = None,
    json: Annotated[bool, Parameter(help="print one JSON object instead of text")] = False,
) -> int:
    """Runs the seeds one after another. Exit code 1 when one breaks a promise; its trace is shown then, and
    running that seed alone shows it again."""
    if switch_off is not None and switch_off not in SWITCHES:
        print(f"there is no rule {switch_off!r}; one of {', '.join(SWITCHES)}", file=sys.stderr)
        return 2
    started = time.perf_counter()
    answers: Counter[str] = Counter()
    done, steps, simulated_s = 0, 0, 0.0
    failed: Outcome | None = None
    console = Screen(stderr=True)
    with nullcontext() if switch_off is None else switched_off(switch_off):
        for seed in track(
            range(first, first + seeds), "simulating", console=console, disable=json or not console.is_terminal
        ):
            outcome = run_seed(seed)
            done, steps, simulated_s = done + 1, steps + outcome.steps, simulated_s + outcome.time_s
            answers.update(outcome.answers)
            if outcome.findings:
                failed = outcome
                break
    report = Report(
        first=first,
        seeds=done,
        seconds=round(time.perf_counter() - started, 3),
        simulated_seconds=round(simulated_s, 1),
        steps=steps,
        answers=dict(answers),
        switched_off=switch_off,
        failed=None if failed is None else failed.seed,
        findings=[] if failed is None else [f"{found.promise}: {found.text}" for found in failed.findings],
    )
    if json:
        print(msgspec.json.encode(report).decode())
    else:
        _show(report, failed)
    return 0 if failed is None else 1


def _show(report: Report, failed: Outcome | None) -> None:
    if failed is not None:
        print(f"seed {failed.seed} breaks a promise; the run, then the log with its verdicts, then what is wrong:")
        for line in (*failed.trace[-TRACE_LINES:], *failed.log):
            print(f"  {line}")
        for finding in report.findings:
            print(finding)
    counts = ", ".join(f"{count} {name}" for name, count in sorted(report.answers.items()))
    print(
        f"{report.seeds} runs from seed {report.first} in {report.seconds:.1f} s "
        f"({report.simulated_seconds:.0f} simulated seconds, {report.steps} steps): {counts}"
    )
    without = "" if report.switched_off is None else f" --switch-off {report.switched_off}"
    again = "" if failed is None else f"surfacelog-sim --first {failed.seed} --seeds 1{without}"
    print(again or "every promise was kept")


def main() -> None:
    """The console script."""
    with quietly_unread():
        sys.exit(app(result_action="return_value"))
