"""A server process that this machine runs for us: started, paused, killed, and never left behind.

Its pid file holds pid and start time, so that a later run finds it and a recycled pid is never signalled.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import msgspec

__all__ = ["Child", "Prerequisite", "ServerFailed", "log_tail", "wait_until"]

LEASH = Path(__file__).with_name("leash.py")


class Prerequisite(Exception):
    """Something that this machine lacks (Java, Maven, a server program); the message says what to install."""


class ServerFailed(Exception):
    """A server ended or did not answer in time; the message holds the end of its log."""


class _PidFile(msgspec.Struct, frozen=True):
    pid: int
    started: str


class Child:
    """One running process, ours or one that an earlier run left and `find` found again."""

    def __init__(
        self, pid: int, started: str, pid_file: Path, log: Path, process: subprocess.Popen[bytes] | None
    ) -> None:
        self.pid = pid
        self.pid_file = pid_file
        self.log = log
        self._started = started
        self._process = process

    @classmethod
    def start(
        cls,
        command: Sequence[str],
        *,
        pid_file: Path,
        log: Path,
        environment: Mapping[str, str] | None = None,
        detached: bool = False,
        last_signal: int = signal.SIGKILL,
    ) -> Self:
        """Starts `command` in the pid file's folder, output appended to `log`. Unless `detached`, it gets
        `last_signal` when the thread that calls this ends (so call it from one that lives on)."""
        if not detached:
            leash = [sys.executable, "-I", "-S", str(LEASH), str(os.getpid()), str(int(last_signal))]
            command = [*leash, *command]
        with log.open("ab") as output:
            process = subprocess.Popen(  # noqa: S603
                command,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=pid_file.parent,
                env={**os.environ, **(environment or {})},
                # A Ctrl-C in the terminal is for us; the servers are told in order.
                start_new_session=True,
            )
        started = _start_time(process.pid) or ""
        _write_atomically(pid_file, msgspec.json.encode(_PidFile(process.pid, started)))
        return cls(process.pid, started, pid_file, log, process)

    @classmethod
    def find(cls, pid_file: Path, log: Path) -> Self | None:
        """The process that the pid file names, if that very process still runs."""
        try:
            known = msgspec.json.decode(pid_file.read_bytes(), type=_PidFile)
        except (OSError, msgspec.DecodeError):
            return None
        child = cls(known.pid, known.started, pid_file, log, None)
        return child if child.alive() else None

    def alive(self) -> bool:
        """Whether it runs (a paused process does, a zombie does not)."""
        if self._process is not None:
            return self._process.poll() is None
        return bool(self._started) and _start_time(self.pid) == self._started

    def signal(self, number: int) -> None:
        """Sends a signal, and does nothing when the process has ended."""
        if self.alive():
            os.kill(self.pid, number)

    def pause(self) -> None:
        """Freezes the process; its connections stay open and nobody answers."""
        self.signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Lets a paused process go on."""
        self.signal(signal.SIGCONT)

    def kill(self) -> None:
        """Ends it at once, as a crash would, and waits until it is gone."""
        self.signal(signal.SIGKILL)
        self._gone_within(10.0)
        self.pid_file.unlink(missing_ok=True)

    def terminate(self) -> None:
        """Asks it to end and does not wait; a paused process is woken to hear it."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)

    def stop(self, grace_s: float) -> bool:
        """Asks it to end and kills it after `grace_s`; True when it ended by itself."""
        self.terminate()
        clean = self._gone_within(grace_s)
        if not clean:
            self.kill()
        self.pid_file.unlink(missing_ok=True)
        return clean

    def memory_bytes(self) -> int | None:
        """Resident memory now; None where the system does not tell."""
        try:
            pages = int(Path(f"/proc/{self.pid}/statm").read_text().split()[1])
        except (OSError, IndexError):
            return None
        return pages * os.sysconf("SC_PAGE_SIZE")

    def _gone_within(self, seconds: float) -> bool:
        end = time.monotonic() + seconds
        while self.alive():
            if time.monotonic() > end:
                return False
            time.sleep(0.01)
        return True


def wait_until(ready: Callable[[], bool], child: Child, what: str, timeout_s: float) -> None:
    """Waits until `ready()`; raises ServerFailed when the child ends or the time is over."""
    end = time.monotonic() + timeout_s
    while not ready():
        if not child.alive():
            raise ServerFailed(f"{what} ended while starting:\n{log_tail(child.log)}")
        if time.monotonic() > end:
            raise ServerFailed(f"{what} did not answer within {timeout_s:.0f} s:\n{log_tail(child.log)}")
        time.sleep(0.02)


def log_tail(log: Path, lines_max: int = 15) -> str:
    """The last lines of a server's log."""
    try:
        return "\n".join(log.read_text(errors="replace").splitlines()[-lines_max:])
    except OSError:
        return "(no log)"


def _write_atomically(path: Path, content: bytes) -> None:
    fresh = path.with_suffix(".new")
    fresh.write_bytes(content)
    fresh.replace(path)


def _start_time(pid: int) -> str | None:
    """A text that differs between two processes that had the same pid; None when none runs or only a zombie."""
    if sys.platform == "linux":
        try:
            boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
            # The command's name may hold spaces and brackets; the fields are counted behind its last bracket.
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        except OSError:
            return None
        return None if fields[0] in "ZX" else f"{boot}/{fields[19]}"
    answer = subprocess.run(  # noqa: S603
        ["ps", "-o", "lstart=", "-p", str(pid)],  # noqa: S607
        capture_output=True,
        text=True,
        check=False,
    )
    return answer.stdout.strip() or None
