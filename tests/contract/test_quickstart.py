"""The tour behind `bash deploy/quickstart`: it runs, it can be taken again, and it cleans up after itself."""

import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

ROOT = Path(__file__).parents[2]


def tour(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    # No output may be held open by the server that stays: the tour itself must end.
    return subprocess.run(
        ["bash", str(ROOT / "deploy" / "quickstart"), *words],
        env={**os.environ, "VIRTUAL_ENV": sys.prefix, "COLUMNS": "120", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield listener.getsockname()[1]


def test_the_tour_runs_and_leaves_nothing(taken_port: int, tmp_path: Path) -> None:
    begun = time.monotonic()
    done = tour("--once", SURFACELOG_PORT=str(taken_port), TMPDIR=str(tmp_path))
    assert done.returncode == 0, done.stderr
    assert time.monotonic() - begun < 60
    shown = re.findall(r"the model sees (\d+) messages.*a person saw (\d+) messages", done.stdout)
    assert shown == [("17", "326"), ("3", "327")]
    assert list(tmp_path.iterdir()) == []


def test_the_tour_can_be_taken_again_and_finds_the_server_it_left(taken_port: int, tmp_path: Path) -> None:
    data = tmp_path / "data"
    first = tour("--data", str(data), SURFACELOG_PORT=str(taken_port))
    assert first.returncode == 0, first.stderr
    found = re.search(r"The server stays at (\S+) .*kill (\d+)", first.stdout)
    assert found is not None
    url, pid = found[1], int(found[2])
    try:
        assert httpx.get(f"{url}/readyz").status_code == 200
        second = tour("--data", str(data))
        assert second.returncode == 0, second.stderr
        assert f"A server is running already at {url}" in second.stdout
        names = re.findall(r"surfacelog messages (\S+)", first.stdout + second.stdout)
        assert len(set(names)) == 2
        for name in names:
            assert httpx.get(f"{url}/v1/sessions/{name}/head").json()["seq"] == 2501
    finally:
        os.kill(pid, signal.SIGTERM)
    until = time.monotonic() + 20
    while (data / "address").exists():
        assert time.monotonic() < until, "the server did not end"
        time.sleep(0.05)
    with pytest.raises(httpx.TransportError):
        httpx.get(f"{url}/healthz")
