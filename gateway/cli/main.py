"""The `surfacelog` command. Exit codes: 0 done, 1 refused or failed, 2 wrongly called, 130 interrupted, 141 nobody
reads the output any more."""

import sys
from collections.abc import Sequence
from importlib.metadata import version

from cyclopts import App, CycloptsError

from gateway.cli.append import append, create
from gateway.cli.bench import app as bench
from gateway.cli.cluster import app as cluster
from gateway.cli.conformance import conformance
from gateway.cli.exports import export_log
from gateway.cli.imports import import_log
from gateway.cli.inspect import inspect
from gateway.cli.messages import head, messages, transcript
from gateway.cli.outlet import Screen, quietly_unread
from gateway.cli.parked import parked
from gateway.cli.project import project
from gateway.cli.quickstart import quickstart
from gateway.cli.remote import Refused
from gateway.cli.serve import serve
from gateway.cli.verify import verify
from producer.cache import CacheUnavailable
from producer.log import Unavailable
from surfacelog.errors import LedgerError

__all__ = ["app", "main"]

app = App(
    name="surfacelog",
    help="A distributed session ledger for LLM agents.",
    help_format="plaintext",
    console=Screen(),
    version=version("surfacelog"),
)
app.command(serve)
app.command(project)
app.command(verify)
app.command(parked)
app.command(create)
app.command(append)
app.command(messages)
app.command(transcript)
app.command(head)
app.command(import_log, name="import")
app.command(export_log, name="export")
app.command(quickstart)
app.command(inspect)
app.command(conformance)
app.command(bench)
app.command(cluster)


def main(words: Sequence[str] | None = None) -> None:
    """Runs a command line, the process's own by default, and exits with its code."""
    try:
        with quietly_unread():
            _run(words)
    except OSError as error:
        print(f"surfacelog: {error}", file=sys.stderr)
        sys.exit(1)


def _run(words: Sequence[str] | None) -> None:
    try:
        app(words, exit_on_error=False)
    except CycloptsError:
        sys.exit(2)
    except Refused as refusal:
        print(f"surfacelog: {refusal}", file=sys.stderr)
        sys.exit(2 if refusal.code == "usage" else 1)
    except (LedgerError, Unavailable, CacheUnavailable) as error:
        print(f"surfacelog: {error}", file=sys.stderr)
        sys.exit(1)
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
