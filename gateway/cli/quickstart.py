"""`surfacelog quickstart`: a tour of the ledger on a real client log, over the HTTP API of a running server.

Starts the embedded ledger, or uses the one that an earlier tour left; what it makes stays, except with `--once`.
"""

import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import msgspec
from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from gateway.cli.imports import import_log
from gateway.cli.messages import line_of, transcript_lines
from gateway.cli.outlet import Screen
from gateway.cli.remote import DEFAULT_URL, Refused, Remote
from gateway.cli.serve import ADDRESS_FILE
from surfacelog.events import event_decoder

__all__ = ["quickstart"]

LOG = Path(__file__).resolve().parents[2] / "examples" / "compacted.jsonl.zst"
START_S = 20.0
STOP_S = 15.0
SHOWN_LINES = 7


def quickstart(*, once: bool = False, data: Path = Path(".surfacelog"), log: Path = LOG) -> int:
    """Start the embedded ledger, import a real log, and show what it does.

    Parameters
    ----------
    once
        Stop the server at the end and leave nothing behind.
    data
        The data directory; with --once a temporary one is used.
    log
        The stored log to import.
    """
    console = Screen(highlight=False)
    if once:
        with tempfile.TemporaryDirectory(prefix="surfacelog-") as folder:
            with _stopped_at_the_end(*_start(Path(folder))) as url:
                _tour(console, url, log)
        console.print("\nThe server has ended and its data is gone.")
        return 0
    running = _running(data)
    if running is None:
        url, process = _start(data)
        stop = f"kill {process.pid}"
    else:
        url, stop = running, "stop it where it was started"
        console.print(f"A server is running already at {url}.")
    name = _tour(console, url, log)
    console.print(f"\nThe server stays at [bold]{url}[/] (to end it: {stop}). Try:")
    console.print(f"  export SURFACELOG_URL={url}", soft_wrap=True)
    console.print(f"  surfacelog messages {name}", soft_wrap=True)
    console.print(f"  curl -s {url}/v1/sessions/{name}/head", soft_wrap=True)
    console.print(f"  curl -sN {url}/v1/sessions/{name}/stream   # and append from elsewhere", soft_wrap=True)
    return 0


def _running(data: Path) -> str | None:
    """The address of a server over this data directory, if one answers."""
    try:
        url = (data / ADDRESS_FILE).read_text(encoding="utf-8").strip()
        return url if httpx.get(f"{url}/healthz", timeout=2).status_code == 200 else None
    except (OSError, httpx.HTTPError):
        return None


def _start(data: Path) -> tuple[str, subprocess.Popen[bytes]]:
    data.mkdir(parents=True, exist_ok=True, mode=0o700)
    output = data / "server.log"
    address = data / ADDRESS_FILE
    address.unlink(missing_ok=True)
    command = [
        sys.executable,
        "-m",
        "gateway.cli.main",
        "serve",
        "--data",
        str(data.absolute()),
        "--port",
        _port(),
    ]
    with output.open("ab") as stream:
        process = subprocess.Popen(  # noqa: S603
            command, stdin=subprocess.DEVNULL, stdout=stream, stderr=stream, start_new_session=True
        )
    until = time.monotonic() + START_S
    while time.monotonic() < until and process.poll() is None:
        url = _running(data)
        if url is not None:
            return url, process
        time.sleep(0.05)
    process.kill()
    tail = output.read_text(encoding="utf-8", errors="replace").splitlines()[-5:]
    raise Refused("unavailable", "the server did not start:\n  " + "\n  ".join(tail))


def _port() -> str:
    """The usual port if it is free, else any."""
    port = int(os.environ.get("SURFACELOG_PORT") or DEFAULT_URL.rpartition(":")[2])
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return "0"
    return str(port)


@contextmanager
def _stopped_at_the_end(url: str, process: subprocess.Popen[bytes]) -> Iterator[str]:
    try:
        yield url
    finally:
        process.terminate()
        try:
            process.wait(STOP_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _tour(console: Console, url: str, log: Path) -> str:
    name = f"tour-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}"
    console.rule("1  A log of a real agent, imported event by event")
    import_log(log, session=name, url=url)
    with Remote(url) as remote:
        _show(console, remote, name)
        console.rule("2  A new message and a compaction, over the HTTP API")
        _speak(console, remote, name)
        _compact(console, remote, name)
        _show(console, remote, name)
    console.print("The model's view shrank; what the person saw only grew, and every event is still there.")
    return name


def _show(console: Console, remote: Remote, name: str) -> None:
    view = msgspec.json.decode(remote.session("GET", name, "messages"))
    seen = [event_decoder.decode(line) for line in transcript_lines(remote, name)]
    left = [line_of(message.get("role", "?"), message) for message in view["messages"]]
    right = [line_of(event.type.partition("/")[0], msgspec.json.decode(event.data)) for event in seen]
    both = Table.grid(expand=True, padding=(0, 1))
    both.add_column(ratio=1)
    both.add_column(ratio=1)
    both.add_row(
        Panel(_tail(left), title=f"the model sees {len(left)} messages"),
        Panel(_tail(right), title=f"a person saw {len(right)} messages"),
    )
    console.print(both)
    console.print(f"seq {view['seq']} · content generation {view['generation']}", style="dim")


def _tail(lines: list[Text]) -> Text:
    shown = Text("\n", no_wrap=True, overflow="ellipsis").join(lines[-SHOWN_LINES:])
    shown.no_wrap, shown.overflow = True, "ellipsis"
    if len(lines) > SHOWN_LINES:
        shown = Text(f"… {len(lines) - SHOWN_LINES} before\n", style="dim", no_wrap=True).append_text(shown)
    return shown


def _append(remote: Remote, name: str, event: dict[str, Any]) -> int:
    done = msgspec.json.decode(remote.session("POST", name, "events", body=msgspec.json.encode(event)))
    return int(done["seq"])


def _user(text: str) -> dict[str, Any]:
    return {"role": "user", "content": [{"type": "text", "text": text}]}


def _speak(console: Console, remote: Remote, name: str) -> None:
    event = {"type": "user/message", "data": _user("Where were we?"), "surfaceOp": "append"}
    console.print(f"appended user/message at seq {_append(remote, name, event)}")


def _compact(console: Console, remote: Remote, name: str) -> None:
    """Replaces all between the system prompt and the newest message by one summary."""
    nodes = msgspec.json.decode(remote.session("GET", name, "surface"))["nodes"]
    gone = nodes[1:-1]
    event = {
        "type": "user/message",
        "data": _user("Summary of the work so far: the tests pass, the report is still to be written."),
        "surfaceOp": {"op": "replace", "startSeq": gone[0], "endSeq": gone[-1]},
        "sourceEventSeqs": gone,
    }
    console.print(f"replaced {len(gone)} nodes by one summary at seq {_append(remote, name, event)}")
