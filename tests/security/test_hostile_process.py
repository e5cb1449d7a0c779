"""Crowds, crashes, a full disk, senders that never end: what was acknowledged stays, nobody waits for ever."""

import asyncio
import json
import resource
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import uvicorn

from gateway import bodies
from gateway.bodies import read_body
from gateway.protocol import HttpProtocol
from surfacelog.errors import ProtocolError
from tests.security.hostile_room import ask, request, send, told
from tests.server_process import ServerProcess, running_server

S = "/v1/sessions"
CROWD = 1000


def note(name: int) -> bytes:
    """A note that is known by its number."""
    return b'{"type":"x/note","ignorable":true,"data":{"n":%d}}' % name


def port_of(server: ServerProcess) -> int:
    """Where it listens now."""
    return int(server.url.rpartition(":")[2])


def stored(server: ServerProcess, session: str) -> list[int]:
    """The numbers of all notes of a session, which is contiguous."""
    found: list[dict[str, Any]] = []
    at: int | None = 0
    while at is not None:
        page = httpx.get(f"{server.url}{S}/{session}/events?from={at}&wait_ms=20000", timeout=30)
        assert page.status_code == 200, page.text
        found += page.json()["events"]
        at = page.json()["next"]
    assert [event["seq"] for event in found] == list(range(len(found)))
    return [event["data"]["n"] for event in found]


class Writers:
    """Clients that each append one note after the other until the connection breaks. `told`: number -> seq."""

    def __init__(self, port: int, session: str, first: int) -> None:
        self._port = port
        self._path = f"{S}/{session}/events"
        self._next = first
        self.told: dict[int, int] = {}

    async def run(self, clients: int) -> None:
        """Until all of them have ended."""
        await asyncio.gather(*(self._write() for _ in range(clients)))

    async def _write(self) -> None:
        while True:
            number, self._next = self._next, self._next + 1
            answer = await ask(self._port, "POST", self._path, note(number))
            if answer.status != 201:
                assert not answer.body or told(answer) in ("unavailable", "unknown-outcome", "overloaded")
                return
            self.told[number] = json.loads(answer.body)["seq"]


def test_a_crowd_of_a_thousand_appends_at_once_is_served_whole(tmp_path: Path) -> None:
    async def crowd() -> list[int]:
        answers = await asyncio.gather(
            *(ask(port, "POST", f"{S}/s/events", note(number)) for number in range(CROWD))
        )
        assert Counter(answer.status for answer in answers) == {201: CROWD}
        return [json.loads(answer.body)["seq"] for answer in answers]

    with running_server(tmp_path / "data") as server:
        port = port_of(server)
        send(port, request("POST", S, b'{"id":"s"}'))
        seqs = asyncio.run(crowd())
        numbers = stored(server, "s")
    assert [numbers[seq] for seq in seqs] == list(range(CROWD))
    assert len(numbers) == CROWD


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL], ids=["asked to end", "killed"])
def test_nothing_acknowledged_is_lost_when_the_server_ends_under_load(tmp_path: Path, number: int) -> None:
    async def under_load(server: ServerProcess, writers: Writers) -> None:
        running = asyncio.create_task(writers.run(20))
        until = len(writers.told) + 100
        while len(writers.told) < until:
            await asyncio.sleep(0.01)
        assert server.process is not None
        server.process.send_signal(number)
        code = await asyncio.to_thread(server.process.wait, 30)
        assert code == (0 if number == signal.SIGTERM else -number)
        await running

    acknowledged: dict[int, int] = {}
    with running_server(tmp_path / "data") as server:
        send(port_of(server), request("POST", S, b'{"id":"s"}'))
        for turn in range(2):
            writers = Writers(port_of(server), "s", turn * 1_000_000)
            asyncio.run(under_load(server, writers))
            acknowledged |= writers.told
            assert server.process is not None
            server.process.communicate()
            server.start()
            numbers = stored(server, "s")
            assert {number: seq for number, seq in acknowledged.items() if numbers[seq] != number} == {}
            assert [number for number, count in Counter(numbers).items() if count > 1] == []


def test_a_disk_that_takes_no_more_is_told_and_the_server_lives(tmp_path: Path) -> None:
    """The limit on a file's size stands in for the end of the disk: to SQLite it is the same."""
    large = b'{"type":"x/note","ignorable":true,"data":{"n":%d,"text":"' + b"x" * 100_000 + b'"}}'
    with running_server(tmp_path / "data") as server:
        port = port_of(server)
        send(port, request("POST", S, b'{"id":"s"}'))
        assert server.process is not None
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (1_500_000, 4_000_000))
        kept = 0
        while (answer := send(port, request("POST", f"{S}/s/events?timeoutMs=500", large % kept))).status == 201:
            kept += 1
            assert kept < 50, "the disk never filled up"
        assert told(answer) in ("unknown-outcome", "unavailable")
        assert send(port, request("GET", f"{S}/s/messages")).status == 200
        resource.prlimit(server.process.pid, resource.RLIMIT_FSIZE, (4_000_000, 4_000_000))
        assert send(port, request("POST", f"{S}/s/events", note(-1))).status == 201
        numbers = stored(server, "s")
        assert numbers[:kept] == list(range(kept))
        assert numbers[-1] == -1


async def test_a_body_that_pauses_for_too_long_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    async def pausing() -> AsyncIterator[bytes]:
        yield b"{"
        await asyncio.sleep(30)

    monkeypatch.setattr(bodies, "BODY_PAUSE_S", 0.05)
    with pytest.raises(ProtocolError) as refusal:
        await read_body(pausing(), None, 1000)
    assert refusal.value.code == "bad-request"


async def test_a_body_that_drips_is_refused_in_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    async def dripping() -> AsyncIterator[bytes]:
        while True:
            yield b" "
            await asyncio.sleep(0.01)

    monkeypatch.setattr(bodies, "BODY_S", 0.1)
    with pytest.raises(ProtocolError) as refusal:
        await read_body(dripping(), None, 1 << 20)
    assert refusal.value.code == "bad-request"


class Impatient(HttpProtocol):
    """The same with little time for a head."""

    head_s = 0.2


async def _hello(scope: Any, receive: Any, send: Any) -> None:
    await asyncio.sleep(0.4)
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
    await send({"type": "http.response.body", "body": b"ok"})


@pytest.fixture
async def address() -> AsyncIterator[tuple[str, int]]:
    listener = socket.socket()
    listener.bind(("127.0.0.1", 0))
    config = uvicorn.Config(_hello, http=Impatient, lifespan="off", log_level="error")
    server = uvicorn.Server(config)
    running = asyncio.create_task(server.serve(sockets=[listener]))
    while not server.started:
        await asyncio.sleep(0.01)
    yield listener.getsockname()
    server.should_exit = True
    await running


async def test_a_head_that_drips_is_cut_off_and_an_answer_that_takes_longer_is_not(
    address: tuple[str, int],
) -> None:
    reader, writer = await asyncio.open_connection(*address)
    async with asyncio.timeout(5):
        with pytest.raises((ConnectionError, asyncio.IncompleteReadError)):  # noqa: PT012 - whichever comes first
            for byte in b"GET / HTTP/1.1\r\nHost: x\r\nX-Long: " + b"y" * 1000:
                writer.write(bytes([byte]))
                await writer.drain()
                await asyncio.sleep(0.01)
            await reader.readexactly(1)
    writer.close()
    silent, closing = await asyncio.open_connection(*address)
    async with asyncio.timeout(5):
        assert await silent.read() == b""
    closing.close()
    answer = await ask(address[1], "GET", "/")
    assert (answer.status, answer.body) == (200, b"ok")
