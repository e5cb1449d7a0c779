"""Shuts the real world out while a simulation runs: threads, sockets, sleeping, entropy, and every clock.

Clocks answer with virtual time only where that cannot decide anything (timing of stages); all else raises.
"""

import logging
import os
import secrets
import socket
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NoReturn

__all__ = ["RealWorldUsed", "closed_world"]


class RealWorldUsed(BaseException):
    """Code under simulation reached for a thread, a socket, a clock or entropy of the real world. Not an
    Exception: no handler of the code under test may swallow it."""


_FORBIDDEN: tuple[tuple[Any, str], ...] = (
    (threading.Thread, "start"),
    (socket.socket, "connect"),
    (socket.socket, "bind"),
    (time, "sleep"),
    (time, "time"),
    (time, "time_ns"),
    (time, "monotonic"),
    (time, "monotonic_ns"),
    (os, "urandom"),
    (secrets, "token_bytes"),
    (secrets, "token_hex"),
    (uuid, "uuid1"),
    (uuid, "uuid4"),
)


@contextmanager
def closed_world(now_s: Callable[[], float]) -> Iterator[None]:
    """Inside, the real world raises RealWorldUsed; `time.perf_counter` and log lines tell virtual time (s)."""
    kept = [(where, name, where.__dict__[name] if name in vars(where) else None) for where, name in _FORBIDDEN]
    perf_counter = time.perf_counter
    for where, name in _FORBIDDEN:
        setattr(where, name, _refusal(f"{getattr(where, '__name__', where)}.{name}"))
    time.perf_counter = now_s
    logging.time = SimpleNamespace(time=now_s)  # type: ignore[attr-defined]
    try:
        yield
    finally:
        time.perf_counter = perf_counter
        logging.time = time  # type: ignore[attr-defined]
        for where, name, original in kept:
            if original is None:
                delattr(where, name)
            else:
                setattr(where, name, original)


def _refusal(name: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise RealWorldUsed(f"{name} was called inside a simulation")

    return refuse
