"""How the command line is read, without a server."""

from importlib.metadata import version
from pathlib import Path
from typing import Any

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
