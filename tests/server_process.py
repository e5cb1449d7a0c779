"""A real `surfacelog serve` process over a data directory of its own."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

__all__ = ["ServerProcess", "running_server"]

START_S = 30.0


class ServerProcess:
    """`url`: where it listens. `start` may be called again after `stop` or `kill`."""

    def __init__(self, folder: Path, *options: str, environment: dict[str, str] | None = None) -> None:
        self.folder = folder
        self.url = ""
        self._options = options
        self._environment = environment or {}
        self.process: subprocess.Popen[str] | None = None

    def start(self) -> None:
        """Starts it and waits until it answers."""
        self.process = self.launch(*self._options)
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if "http://" not in line:
            _, errors = self.process.communicate(timeout=START_S)
            raise AssertionError(f"the server did not start: {line}{errors}")
        self.url = line.split()[2]
        until = time.monotonic() + START_S
        while time.monotonic() < until:
            if httpx.get(f"{self.url}/readyz").status_code == 200:
                return
            time.sleep(0.05)
        raise AssertionError("the server is not ready")

    def launch(self, *options: str) -> subprocess.Popen[str]:
        """One more process over the same directory."""
        command = [sys.executable, "-m", "gateway.cli.main", "serve", "--data", str(self.folder), "--port", "0"]
        return subprocess.Popen(
            [*command, *options],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env={**os.environ, **self._environment},
        )

    def stop(self) -> int:
        """Asks it to end; its exit code."""
        return self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Ends it as a crash would."""
        self._end(signal.SIGKILL)

    def _end(self, number: signal.Signals) -> int:
        process, self.process = self.process, None
        assert process is not None
        process.send_signal(number)
        process.communicate(timeout=30)
        return process.returncode


@contextmanager
def running_server(
    folder: Path, *options: str, environment: dict[str, str] | None = None
) -> Iterator[ServerProcess]:
    """A server that is stopped at the end."""
    server = ServerProcess(folder, *options, environment=environment)
    server.start()
    try:
        yield server
    finally:
        if server.process is not None:
            server.stop()
