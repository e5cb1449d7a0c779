"""Commands whose output nobody reads any more, as behind `| head`, and commands whose input never ends."""

import os
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gateway.cli.outlet import UNREAD_EXIT, quietly_unread
from tests.contract.gateway_room import user
from tests.server_process import running_server

ROOT = Path(__file__).parents[2]
LOG = str(ROOT / "examples" / "compacted.jsonl.zst")
CASES = str(ROOT / "tests" / "contract" / "cases")
OFFLINE = [
    ["inspect", LOG],
    ["inspect", LOG, "--json"],
    ["conformance", CASES],
    ["conformance", CASES, "--json"],
    ["bench", "fold", LOG, "--events", "400", "--rounds", "1"],
    ["--help"],
    ["inspect", "--help"],
]


MAIN = ["-m", "gateway.cli.main"]
SIMULATION = ["-c", "from sim.command import main; main()"]


def unread(*words: str, both: bool = False) -> tuple[int, str]:
    """Exit code and stderr of a Python whose stdout (or both outputs) has no reader from the start."""
    reading, writing = os.pipe()
    os.close(reading)
    errors = writing if both else subprocess.PIPE
    try:
        done = subprocess.run([sys.executable, *words], stdout=writing, stderr=errors, timeout=60)
    finally:
        os.close(writing)
    return done.returncode, (done.stderr or b"").decode()


@pytest.mark.parametrize("words", OFFLINE, ids=" ".join)
# What is held fails when it is flushed at the end, what is not at once.
@pytest.mark.parametrize("unbuffered", ["", "1"])
def test_a_command_whose_output_is_not_read_ends_quietly(
    words: list[str], unbuffered: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYTHONUNBUFFERED", unbuffered)
    assert unread(*MAIN, *words) == (UNREAD_EXIT, "")


def test_a_command_whose_errors_are_not_read_ends_so_too(tmp_path: Path) -> None:
    assert unread(*MAIN, "inspect", str(tmp_path / "none"), both=True)[0] == UNREAD_EXIT


def test_the_commands_of_a_running_server_end_quietly(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with running_server(tmp_path) as server:
        monkeypatch.setenv("SURFACELOG_URL", server.url)
        httpx.post(f"{server.url}/v1/sessions", json={"id": "s", "checks": "surface"})
        httpx.post(f"{server.url}/v1/sessions/s/events", json=[user(str(number)) for number in range(9)])
        for words in (["messages"], ["messages", "--json"], ["transcript"], ["transcript", "--json"], ["head"]):
            assert unread(*MAIN, words[0], "s", *words[1:]) == (UNREAD_EXIT, ""), words
        assert unread(*MAIN, "export", "s") == (UNREAD_EXIT, "")


def test_the_simulation_ends_quietly() -> None:
    assert unread(*SIMULATION, "--seeds", "1") == (UNREAD_EXIT, "")


def test_what_is_read_is_whole_and_a_pipe_that_breaks_elsewhere_is_told() -> None:
    done = subprocess.run([sys.executable, *MAIN, "inspect", LOG], capture_output=True)
    assert done.stdout.endswith(b"\n")
    assert (done.returncode, done.stderr) == (0, b"")
    with pytest.raises(BrokenPipeError, match="a socket"), quietly_unread():
        raise BrokenPipeError("a socket")


@pytest.mark.parametrize("words", [["inspect"], ["import"], ["bench", "fold"], ["conformance"]], ids=" ".join)
def test_a_file_without_end_is_refused(words: list[str]) -> None:
    done = subprocess.run([sys.executable, *MAIN, *words, "/dev/zero"], capture_output=True, text=True, timeout=60)
    assert done.returncode == 1
    assert "too-large: row 0 is longer than 67108864 bytes" in done.stderr


def test_a_log_is_refused_beyond_the_bytes_that_are_allowed() -> None:
    words = [*MAIN, "inspect", LOG, "--max-bytes", "1000"]
    done = subprocess.run([sys.executable, *words], capture_output=True)
    assert done.returncode == 1
    assert b"too-large: the file has more than 1000 bytes" in done.stderr
