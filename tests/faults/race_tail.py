"""Runner of the cases about live tails, and a reader of them that talks to a node's gateway as a browser does."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec

from gateway.app import create_app
from gateway.paths import session_path
from tests.faults.race_cases import bare
from tests.faults.race_room import Node, RaceRoom

__all__ = ["Frame", "Tail", "open_tail", "run_tail"]

Event = dict[str, Any]
QUIET_S = 0.4
FRAME_S = 10.0


class Frame(msgspec.Struct, frozen=True):
    """One server-sent event."""

    id: str
    event: str
    data: Any


class Tail:
    """Frames as they come."""

    def __init__(self, pieces: asyncio.Queue[bytes]) -> None:
        self._pieces = pieces
        self._left = b""
        self._frames: list[Frame] = []

    async def next(self, wait_s: float = FRAME_S) -> Frame | None:
        """The next frame, None when none comes in time."""
        try:
            async with asyncio.timeout(wait_s):
                while not self._frames:
                    *whole, self._left = (self._left + await self._pieces.get()).split(b"\n\n")
                    self._frames += [frame for text in whole if (frame := _frame(text)) is not None]
        except TimeoutError:
            return None
        return self._frames.pop(0)

    async def take(self, count: int) -> list[Frame]:
        """Exactly so many frames, and then none."""
        found = [frame for frame in [await self.next() for _ in range(count)] if frame is not None]
        assert await self.next(QUIET_S) is None, "the tail has more than it should"
        return found


def _frame(text: bytes) -> Frame | None:
    fields = dict(
        line.split(b": ", 1) for line in text.split(b"\n") if b": " in line and not line.startswith(b":")
    )
    if b"data" not in fields:
        return None
    return Frame(
        fields.get(b"id", b"").decode(),
        fields.get(b"event", b"message").decode(),
        msgspec.json.decode(fields[b"data"]),
    )


@asynccontextmanager
async def open_tail(node: Node, session: str, last: str | None = None, query: str = "") -> AsyncIterator[Tail]:
    """A connection to the stream route that is dropped at the end. httpx's own transport waits for the whole
    answer, so the application is called directly."""
    pieces: asyncio.Queue[bytes] = asyncio.Queue()
    path = session_path(session, "stream")
    gone = asyncio.Event()
    asked = False

    async def receive() -> dict[str, Any]:
        nonlocal asked
        if asked:
            await gone.wait()
            return {"type": "http.disconnect"}
        asked = True
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            assert message["status"] == 200, message
        elif message.get("body"):
            pieces.put_nowait(message["body"])

    headers = [(b"host", b"ledger")] + ([(b"last-event-id", last.encode())] if last is not None else [])
    scope = {
        "type": "http",
        "asgi": {"version": "3.0"},
        "http_version": "1.1",
        "method": "GET",
        "scheme": "http",
        "path": path,
        "raw_path": path.encode(),
        "query_string": query.encode(),
        "headers": headers,
        "client": ("127.0.0.1", 1),
        "server": ("ledger", 80),
        "state": {},
    }
    application: Any = create_app(node.services)
    task = asyncio.create_task(application(scope, receive, send))
    try:
        yield Tail(pieces)
    finally:
        gone.set()
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


async def run_tail(case: Event, room: RaceRoom) -> None:
    """The client's steps, once for each of several moments at which events may come while it connects again."""
    reading, writing = await room.new_node(), await room.new_node()
    moments_ms = (0, 0, 1, 2, 5, 10, 20)
    await asyncio.gather(
        *(
            _steps(case, reading, writing, f"tail-{number}", pause_ms / 1000)
            for number, pause_ms in enumerate(moments_ms)
        )
    )


async def _steps(case: Event, reading: Node, writing: Node, session: str, pause_s: float) -> None:
    events: list[Event] = case["events"]
    epoch = await writing.create(session)
    written = 0

    async def write(until: int) -> None:
        nonlocal written
        while written < until:
            event, written = events[written], written + 1
            done = await writing.append(session, bare(event))
            assert (done.status_code, done.json()["seq"]) == (201, written - 1), done.text

    for step in case["client"]:
        if "receives" in step:
            await write(max(step["receives"]) + 1)
            async with open_tail(reading, session, query="from=0") as tail:
                frames = await tail.take(len(step["receives"]))
            assert [frame.id for frame in frames] == list(map(str, step["receives"]))
        elif "serverAppends" in step:
            await write(max(step["serverAppends"]) + 1)
        elif "reconnect" in step:
            must = step["mustReceive"]

            async def later() -> None:
                await asyncio.sleep(pause_s)
                await write(len(events))

            meanwhile = asyncio.create_task(later())
            last = str(step["reconnect"]).replace("<epoch>", epoch)
            async with open_tail(reading, session, last) as tail:
                frames = await tail.take(len(must))
            await meanwhile
            assert [frame.id for frame in frames] == list(map(str, must))
            assert [frame.data["seq"] for frame in frames] == must
            assert [bare(frame.data) for frame in frames] == [bare(events[seq]) for seq in must]
