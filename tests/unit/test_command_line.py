"""How the command line is read, without a server."""

from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import version
from pathlib import Path
from threading import Thread
from typing import Any, ClassVar

import pytest

from gateway.cli.main import app, main
from sim.command import app as simulation


@pytest.mark.parametrize(
    ("words", "asked"),
    [
        (["user/message", "-"], {"type": "user/message", "data": "-"}),
        (["--file", "-", "--json"], {"file": Path("-"), "json": True}),
        (["x/note", "-5"], {"type": "x/note", "data": "-5"}),
        (["x/note", "--create", "--json"], {"type": "x/note", "create": True, "json": True}),
    ],
)
def test_an_event_may_come_from_standard_input(words: list[str], asked: dict[str, Any]) -> None:
    _, bound, _ = app.parse_args(["append", "demo", *words])
    assert bound.arguments == {"session": "demo", **asked}


class Unsure(BaseHTTPRequestHandler):
    """A server that does not know what became of an append; keeps the keys that it was sent."""

    keys: ClassVar[list[str]] = []

    def do_POST(self) -> None:
        self.keys.append(self.headers["Idempotency-Key"])
        body = b'{"code":"unknown-outcome","message":"no verdict yet","detail":{}}'
        self.send_response(504)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def test_an_append_of_unknown_outcome_tells_its_key(capsys: pytest.CaptureFixture[str]) -> None:
    with ThreadingHTTPServer(("127.0.0.1", 0), Unsure) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        words = ["append", "s", "x/note", "{}", "--url", f"http://127.0.0.1:{server.server_port}"]
        for more in ([], [], ["--key", "mine"]):
            with pytest.raises(SystemExit) as end:
                main([*words, *more])
            assert end.value.code == 1
            assert f"--key {Unsure.keys[-1]} " in capsys.readouterr().err
        server.shutdown()
    first, second, third = Unsure.keys
    assert first != second
    assert third == "mine"


@pytest.mark.parametrize(
    "words",
    [
        ["bench", "fold", "log", "--events", "0"],
        ["bench", "append", "--commits", "0"],
        ["bench", "rebuild", "--sessions", "-1"],
        ["bench", "lists", "--rounds", "0"],
    ],
)
def test_a_measurement_of_nothing_is_wrongly_called(words: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(words)
    assert end.value.code == 2


def test_a_simulation_of_nothing_proves_nothing() -> None:
    with pytest.raises(SystemExit) as end:
        simulation(["--seeds", "0"])
    assert end.value.code


def test_the_command_knows_its_version(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["--version"])
    assert not end.value.code
    assert capsys.readouterr().out.strip() == version("surfacelog")
