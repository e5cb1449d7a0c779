"""Output that nobody reads any more, as behind `| head`: the command ends at once and says nothing."""

import os
import select
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TextIO

from rich.console import Console

__all__ = ["UNREAD_EXIT", "Screen", "quietly_unread"]

# What a shell shows for a program that SIGPIPE ended.
UNREAD_EXIT = 141


class Screen(Console):
    """A console that leaves it to `quietly_unread` what an output without a reader means."""

    def on_broken_pipe(self) -> None:
        raise BrokenPipeError


@contextmanager
def quietly_unread() -> Iterator[None]:
    """Exits with `UNREAD_EXIT` when the reader of an output is gone. A broken pipe to anybody else is raised."""
    try:
        try:
            yield
        finally:
            # Else what is left is written when the interpreter ends, and an error there is told with a traceback.
            if sys.stdout is not None:
                sys.stdout.flush()
    except BrokenPipeError:
        if not _unread():
            raise
        sys.exit(UNREAD_EXIT)


def _unread() -> bool:
    """Whether stdout or stderr has no reader; what is still held for it goes nowhere from now on."""
    found = False
    for stream in (sys.stdout, sys.stderr):
        if stream is not None and _is_broken(stream):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, stream.fileno())
            os.close(nowhere)
            found = True
    return found


def _is_broken(stream: TextIO) -> bool:
    """Asked of the system: a write that failed may have left nothing behind to try again with."""
    try:
        number = stream.fileno()
    except OSError:
        return False
    ends = select.poll()
    ends.register(number, 0)
    return bool(ends.poll(0))
