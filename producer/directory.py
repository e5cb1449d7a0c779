"""The data directory of the embedded mode: one process at a time, held by a lock that dies with it."""

import fcntl
import os
from pathlib import Path

from surfacelog.errors import ProtocolError

__all__ = ["DataDirectory"]


class DataDirectory:
    """Makes the directory and takes its lock; raises ProtocolError `misconfigured` when another process has it,
    or when it cannot be written."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            path.mkdir(parents=True, exist_ok=True, mode=0o700)
            self._file = os.open(path / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise ProtocolError(
                "misconfigured", f"the data directory {path} cannot be used: {error.strerror}"
            ) from None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            holder = os.pread(self._file, 32, 0).decode("ascii", "replace").strip()
            os.close(self._file)
            raise ProtocolError(
                "misconfigured",
                f"the data directory {path} is in use by process {holder or 'unknown'}; "
                "stop it, talk to it over HTTP, or choose another directory with SURFACELOG_DATA_DIR",
            ) from None
        os.ftruncate(self._file, 0)
        os.pwrite(self._file, b"%d\n" % os.getpid(), 0)

    def release(self) -> None:
        """Lets another process have it. Calling it twice does no harm."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1
