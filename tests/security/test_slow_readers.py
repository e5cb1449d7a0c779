"""Readers that open many live tails, or never take what they asked for: both are held to their bounds."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, cast

import uvicorn

from gateway.app import create_app
from gateway.protocol import HttpProtocol
from gateway.settings import GatewaySettings
from surfacelog.errors import ProtocolError
from tests.contract.gateway_room import Gateway, open_gateway

STALL_S = 0.3
TEXT = "x" * 500_000
EVENTS = 40


class Impatient(HttpProtocol):
    """The same with little patience for readers."""

    stall_s = STALL_S


@asynccontextmanager
async def listening(gateway: Gateway) -> AsyncIterator[tuple[str, int]]:
    """The gateway on a real socket; its address."""
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    app = cast(Any, create_app(gateway.services))
    server = uvicorn.Server(uvicorn.Config(app, http=Impatient, lifespan="off", log_level="error"))
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    try:
        yield listener.getsockname()
    finally:
        server.should_exit = True
        gateway.services.streams.close()
        await running


async def fill(gateway: Gateway) -> None:
    """More than the sockets of both sides take."""
    await gateway.create("s")
    for _ in range(EVENTS):
        note = {"type": "x/note", "ignorable": True, "data": TEXT}
        assert (await gateway.append("s", note)).status_code == 201


async def connect(address: tuple[str, int]) -> socket.socket:
    """A connection that takes little before it is read, and has asked for the session's tail."""
    connection = socket.socket()
    connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 16_384)
    connection.setblocking(False)
    loop = asyncio.get_running_loop()
    await loop.sock_connect(connection, address)
    await loop.sock_sendall(connection, b"GET /v1/sessions/s/stream?from=0 HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
    return connection


async def becomes(gateway: Gateway, streams: int) -> None:
    """Waits until so many streams are open."""
    async with asyncio.timeout(10):
        while gateway.services.streams.open != streams:
            await asyncio.sleep(0.02)


async def test_as_many_live_tails_as_are_started_at_once_are_counted_before_they_say_anything() -> None:
    async with open_gateway(GatewaySettings(streams_max=2)) as gateway:
        await gateway.create("s")
        streams = gateway.services.streams
        started = await asyncio.gather(
            *(streams.start("local", "s", None) for _ in range(50)), return_exceptions=True
        )
        refused = [found for found in started if isinstance(found, ProtocolError)]
        assert {error.code for error in refused} == {"overloaded"}
        assert (len(refused), streams.open) == (48, 2)
        # Those two were never read; their places are free again as soon as nobody holds them.
        del started
        await becomes(gateway, 0)
        with suppress(ProtocolError):
            await streams.start("local", "unknown", None)
        assert streams.open == 0


async def test_a_reader_that_takes_nothing_is_dropped_and_its_place_is_free_again() -> None:
    async with open_gateway() as gateway, listening(gateway) as address:
        await fill(gateway)
        connection = await connect(address)
        await becomes(gateway, 1)
        await becomes(gateway, 0)
        connection.close()


async def test_a_reader_that_is_slow_but_goes_on_gets_everything() -> None:
    async with open_gateway() as gateway, listening(gateway) as address:
        await fill(gateway)
        connection = await connect(address)
        loop = asyncio.get_running_loop()
        began, received = loop.time(), 0
        async with asyncio.timeout(20):
            while received < EVENTS * len(TEXT):
                piece = await loop.sock_recv(connection, 1 << 20)
                assert piece, f"dropped after {received} bytes"
                received += len(piece)
                await asyncio.sleep(0.004)
        assert loop.time() - began > 2 * STALL_S
        connection.close()
        await becomes(gateway, 0)


async def test_readers_that_go_away_leave_no_place_taken() -> None:
    async with open_gateway(GatewaySettings(streams_max=2)) as gateway, listening(gateway) as address:
        await fill(gateway)
        for _ in range(5):
            connection = await connect(address)
            await becomes(gateway, 1)
            connection.close()
            await becomes(gateway, 0)
