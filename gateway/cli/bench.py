"""`surfacelog bench …`: figures of this release on this machine, each beside a baseline of the same run."""

from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number
from rich.table import Table

from gateway.cli.outlet import Screen

__all__ = ["app"]

Count = Annotated[int, Parameter(validator=Number(gte=1))]

app = App(name="bench", help="Measure this release on this machine.", help_format="plaintext")


@app.command(name="fold")
def bench_fold(log: Path, /, *, events: Count = 200_000, rounds: Count = 3, json: bool = False) -> int:
    """Measure the core on a stored log: decode and fold, load, append, memory.

    Parameters
    ----------
    log
        The stored log, repeated until it has enough events.
    events
        How many.
    rounds
        Each figure is the best of so many.
    json
        Print the figures as JSON.
    """
    from gateway.cli.bench_fold import fold_figures

    return _show(fold_figures(log, events, rounds), json)


@app.command(name="append")
def bench_append(
    *,
    sessions: Count = 200,
    commits: Count = 20_000,
    turns: Count = 10_000,
    partitions: Count = 16,
    depth: Count = 8,
    json: bool = False,
) -> int:
    """Measure accepted appends on real Kafka and Redis beside the bare broker with the same bytes.

    The servers are those of SURFACELOG_KAFKA and SURFACELOG_REDIS, else they are started for it.

    Parameters
    ----------
    sessions
        How many sessions are written at once.
    commits
        How many commits of one event each.
    turns
        How long the session grows whose appends are timed.
    partitions
        Of the topic.
    depth
        How many appends each session has under way.
    json
        Print the figures as JSON.
    """
    from gateway.cli.bench_append import append_figures

    return _show(append_figures(sessions, commits, turns, partitions, depth), json)


@app.command(name="rebuild")
def bench_rebuild(
    *,
    events: Count = 1_000_000,
    sessions: Count = 2000,
    per_commit: Count = 1,
    partitions: Count = 64,
    rate: Count = 2000,
    json: bool = False,
) -> int:
    """Measure the projection from Kafka into Redis beside a bare consumer, its lag, and its memory.

    Parameters
    ----------
    events
        How many are written and projected.
    sessions
        Over how many sessions they are spread.
    per_commit
        Events in one commit.
    partitions
        Of the topic.
    rate
        Commits a second while the lag is measured.
    json
        Print the figures as JSON.
    """
    from gateway.cli.bench_rebuild import rebuild_figures

    return _show(rebuild_figures(events, sessions, per_commit, partitions, rate), json)


@app.command(name="lists")
def bench_lists(*, message_bytes: Count = 400, rounds: Count = 500, json: bool = False) -> int:
    """Measure a message list beside one string that messages are appended to: memory, reads, appends, replaces.

    Parameters
    ----------
    message_bytes
        The size of a message.
    rounds
        How often each act is timed.
    json
        Print the figures as JSON.
    """
    from gateway.cli.bench_lists import lists_figures

    return _show(lists_figures(message_bytes, rounds), json)


def _show(figures: dict[str, object], as_json: bool) -> int:
    if as_json:
        print(msgspec.json.encode(figures).decode())
        return 0
    table = Table("figure", "value")
    for name, value in _flat(figures):
        table.add_row(name, f"{value:,.2f}" if isinstance(value, float) else f"{value:,}")
    Screen().print(table)
    return 0


def _flat(figures: dict[str, object], prefix: str = "") -> list[tuple[str, float | int]]:
    found: list[tuple[str, float | int]] = []
    for name, value in figures.items():
        if isinstance(value, dict):
            found += _flat(value, f"{prefix}{name} ")
        elif isinstance(value, int | float):
            found.append((prefix + name, value))
    return found
