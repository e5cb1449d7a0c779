"""Runs the HTTP application until it is told to stop, and then lets answers in progress end."""

import asyncio
import contextlib
import signal
import socket
from collections.abc import Callable, Iterator
from typing import Any, cast

import uvicorn

from gateway.app import create_app
from gateway.protocol import HttpProtocol
from gateway.services import Services
from surfacelog.errors import ProtocolError

__all__ = ["serve"]

GRACE_S = 10
BACKLOG = 2048


class _Server(uvicorn.Server):
    """uvicorn without its own signal handling, which would end the process before the rest is put away."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


async def serve(services: Services, started: Callable[[str], None]) -> None:
    """Serves until SIGINT or SIGTERM; calls `started` with the address. Raises `misconfigured` when the port is
    taken."""
    settings = services.settings
    listener = _listen(settings.host, settings.port)
    config = uvicorn.Config(
        cast(Any, create_app(services)),
        http=HttpProtocol,
        lifespan="off",
        log_level="warning",
        access_log=False,
        server_header=False,
        date_header=False,
        timeout_graceful_shutdown=GRACE_S,
        # Idle connections of clients that keep them are cheap; closing them early only makes clients retry.
        timeout_keep_alive=75,
    )
    server = _Server(config)

    def stop() -> None:
        server.should_exit = True
        # Live tails would keep the server open for as long as they last.
        services.streams.close()

    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, stop)
    try:
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        running = asyncio.create_task(server.serve(sockets=[listener]), name="http")
        while not server.started and not running.done():
            await asyncio.sleep(0.01)
        started(f"http://{host}:{listener.getsockname()[1]}")
        await running
    finally:
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.remove_signal_handler(number)
        listener.close()
        await services.close()


def _listen(host: str, port: int) -> socket.socket:
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    # The protocol is named because asyncio turns Nagle's algorithm off only where it is; else an answer may wait
    # 40 ms for the client's delayed acknowledgement.
    listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        raise ProtocolError(
            "misconfigured", f"port {port} cannot be served ({error.strerror}); choose another with --port"
        ) from None
    listener.setblocking(False)
    return listener
