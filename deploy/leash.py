"""Becomes another program that dies with its parent: `python -I -S leash.py PARENT SIGNAL PROGRAM ARGUMENTS…`.

A program of its own, not a `preexec_fn`: the tests' process runs librdkafka's threads, and Python code between
their fork and exec may deadlock. On systems without prctl (not Linux) it only becomes the program.
"""

import ctypes
import os
import sys

__all__: list[str] = []

PR_SET_PDEATHSIG = 1


def main(parent: str, signal_number: str, *command: str) -> None:
    """Never returns: the process is `command` afterwards, or has ended because `parent` is gone already."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal_number))
    # The parent may have died before the line above took hold; then nobody would ever send the signal.
    if os.getppid() != int(parent):
        sys.exit("the parent is gone")
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main(*sys.argv[1:])
