"""HTTP/1.1 as uvicorn speaks it, with refusals in our shape where no application is asked yet, and a bound on how
long a request's head may take and on how long an answer may find nobody who reads it."""

import asyncio
import fcntl
import struct
import termios
from contextlib import suppress
from typing import Any

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from gateway.status import refuse

__all__ = ["HEAD_S", "STALL_S", "HttpProtocol"]

# A client that drips its request line and headers holds a socket; this is far beyond any honest one.
HEAD_S = 30.0
# A reader that takes nothing of what waits for it for as long as this has gone, or wants to cost us memory.
STALL_S = 30.0


class HttpProtocol(H11Protocol):
    """For `uvicorn.Config(http=…)`."""

    head_s = HEAD_S
    stall_s = STALL_S
    _head_timer: asyncio.TimerHandle | None = None
    _stall_timer: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """A socket is open; a request should come."""
        super().connection_made(transport)
        self._watch_head()

    def data_received(self, data: bytes) -> None:
        """A piece of a request, of whatever part of it."""
        super().data_received(data)
        self._watch_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """The socket is closed."""
        self._end_watch()
        self._end_stall()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """More waits for the reader than is good."""
        super().pause_writing()
        self._watch_stall()

    def resume_writing(self) -> None:
        """The reader has taken most of it."""
        self._end_stall()
        super().resume_writing()

    def send_400_response(self, msg: str) -> None:
        """What is no HTTP at all is refused like everything else."""
        self._end_watch()
        body = refuse("bad-request", "this is not a request of HTTP/1.1").body
        headers: list[Any] = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(body)),
            (b"connection", b"close"),
        ]
        if self.conn.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            for event in (
                h11.Response(status_code=400, headers=headers, reason=b"Bad Request"),
                h11.Data(data=body),
                h11.EndOfMessage(),
            ):
                self.transport.write(self.conn.send(event) or b"")
        self.transport.close()

    def _watch_head(self) -> None:
        if self.conn.their_state is not h11.IDLE:
            self._end_watch()
        elif self._head_timer is None:
            # Not set anew by more pieces of the same head.
            self._head_timer = self.loop.call_later(self.head_s, self.transport.close)

    def _end_watch(self) -> None:
        if self._head_timer is not None:
            self._head_timer.cancel()
            self._head_timer = None

    def _watch_stall(self) -> None:
        self._stall_timer = self.loop.call_later(self.stall_s, self._judge_stall, self._waiting())

    def _judge_stall(self, waiting: int) -> None:
        if self._waiting() < waiting:
            self._watch_stall()
        else:
            # Closing would wait for the reader to take the rest.
            self.transport.abort()

    def _waiting(self) -> int:
        """Bytes that the reader has not taken: ours, and the kernel's, which asks for more by the megabyte."""
        queued = bytes(4)
        with suppress(OSError):
            queued = fcntl.ioctl(self.transport.get_extra_info("socket").fileno(), termios.TIOCOUTQ, queued)
        return self.transport.get_write_buffer_size() + int(struct.unpack("i", queued)[0])

    def _end_stall(self) -> None:
        if self._stall_timer is not None:
            self._stall_timer.cancel()
            self._stall_timer = None
