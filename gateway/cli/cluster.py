"""`surfacelog cluster up | status | down`: Kafka and Valkey in the background, without Docker.

Exit codes: 0 it runs (down: nothing runs any more), 1 it failed or runs only in part, 3 it does not run.
"""

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated

import msgspec
from cyclopts import App, Parameter
from cyclopts.validators import Number

from deploy import cluster
from deploy.child import Prerequisite, ServerFailed
from deploy.cluster import ClusterStatus
from gateway.cli.outlet import Screen

__all__ = ["app"]

NOT_RUNNING = 3
FOLDER = Path(".surfacelog/cluster")
NODES_MAX = 5

app = App(name="cluster", help="Kafka and Valkey in the background, without Docker.", help_format="plaintext")


@app.command
def up(
    *,
    folder: Path = FOLDER,
    nodes: Annotated[int | None, Parameter(validator=Number(gte=1, lte=NODES_MAX))] = None,
    json: bool = False,
) -> int:
    """Start the servers, or those of them that do not run, and print how to reach them.

    Parameters
    ----------
    folder
        Where data, logs and pid files are kept.
    nodes
        How many Kafka nodes; by default as many as the folder has already, else 1.
    json
        Print JSON in place of the exports.
    """
    try:
        with _progress() as report:
            now = cluster.up(folder, nodes, report)
    except (Prerequisite, ServerFailed, ValueError) as error:
        print(f"surfacelog: {error}", file=sys.stderr)
        return 1
    _show(now, json)
    return 0


@app.command
def status(*, folder: Path = FOLDER, json: bool = False) -> int:
    """Say what runs.

    Parameters
    ----------
    folder
        The folder given to `up`.
    json
        Print JSON.
    """
    now = cluster.status(folder)
    if now is None:
        print("null" if json else f"no cluster in {folder}")
        return NOT_RUNNING
    _show(now, json)
    if now.ended:
        return NOT_RUNNING
    return 0 if now.complete else 1


@app.command
def down(*, folder: Path = FOLDER, json: bool = False) -> int:
    """End the servers; their data stays for the next `up`.

    Parameters
    ----------
    folder
        The folder given to `up`.
    json
        Print JSON.
    """
    ran = cluster.down(folder)
    if json:
        print(msgspec.json.encode({"ended": ran}).decode())
    else:
        print("ended" if ran else "nothing ran")
    return 0


def _show(now: ClusterStatus, json: bool) -> None:
    if json:
        print(msgspec.json.encode(now).decode())
        return
    # Comments, so that `eval "$(surfacelog cluster up)"` sets the variables.
    redis = "runs" if now.redis_running else "is down"
    print(f"# {now.running} of {now.nodes} Kafka node(s) running, Valkey {redis}, {now.memory_bytes >> 20} MB")
    print(f"export SURFACELOG_KAFKA={now.kafka}")
    print(f"export SURFACELOG_REDIS={now.redis}")


@contextmanager
def _progress() -> Iterator[Callable[[str], None]]:
    console = Screen(stderr=True)
    if console.is_terminal:
        with console.status("starting") as spinner:
            yield spinner.update
        return
    told: set[str] = set()

    def tell(text: str) -> None:
        step = text.partition(":")[0]
        if step not in told:
            told.add(step)
            print(step, file=sys.stderr, flush=True)

    yield tell
