"""Requests as no library would send them: raw bytes to a server's socket, and the shape that every refusal has."""

import asyncio
import json
import re
import socket
from collections.abc import Sequence
from typing import Any

import msgspec

__all__ = ["EVENTS", "NOTE", "SESSIONS", "Answer", "ask", "request", "send", "told"]

SESSIONS = "/v1/sessions"
EVENTS = f"{SESSIONS}/s/events"
NOTE = b'{"type":"x/note","data":{},"ignorable":true}'
WAIT_S = 20.0
# What no refusal names: servers, files, keys, the record's key, the language it is written in.
SECRETS = (b"kafka", b"redis", b"valkey", b"sqlite", b"traceback", b"sl:{", b"local/", b"/tmp", b".py")


class Answer(msgspec.Struct, frozen=True):
    """`status`: 0 when the connection was closed without an answer."""

    status: int
    headers: dict[str, str]
    body: bytes


def request(method: str, path: str | bytes, body: bytes = b"", headers: Sequence[bytes] = ()) -> bytes:
    """A request's bytes, with a Content-Length unless the headers bring one, or a transfer coding."""
    own = [b"Host: 127.0.0.1", *headers]
    if not any(line.lower().startswith((b"content-length", b"transfer-encoding")) for line in headers):
        own.append(b"Content-Length: %d" % len(body))
    target = path if isinstance(path, bytes) else path.encode()
    return b"%s %s HTTP/1.1\r\n%s\r\n\r\n%s" % (method.encode(), target, b"\r\n".join(own), body)


def send(port: int, data: bytes, *, close: bool = False) -> Answer:
    """The first answer on a new connection. `close`: nothing more is sent after `data`."""
    with socket.create_connection(("127.0.0.1", port), timeout=WAIT_S) as connection:
        try:
            connection.sendall(data)
            if close:
                connection.shutdown(socket.SHUT_WR)
            return read_answer(connection, data.startswith(b"HEAD "))
        except ConnectionError:
            return Answer(0, {}, b"")


def read_answer(connection: socket.socket, bodiless: bool) -> Answer:
    """Reads until the answer's announced end, or the end of the connection."""
    received = b""
    while True:
        head, blank, body = received.partition(b"\r\n\r\n")
        if blank:
            status = int(head.split()[1])
            lines = [line.partition(b":") for line in head.split(b"\r\n")[1:]]
            headers = {name.decode().lower(): value.strip().decode("latin-1") for name, _, value in lines}
            length = int(headers.get("content-length", "0")) if status >= 200 else 0
            if bodiless or status in (204, 304) or ("content-length" in headers and len(body) >= length):
                return Answer(status, headers, b"" if bodiless else body[:length])
        piece = connection.recv(65_536)
        if not piece:
            return Answer(0, {}, received)
        received += piece


def told(answer: Answer) -> str:
    """The code of a refusal that has its shape and gives nothing away."""
    found: dict[str, Any] = json.loads(answer.body)
    assert set(found) == {"code", "message", "detail"}, found
    assert found["message"]
    assert re.fullmatch(r"[a-z][a-z-]+", found["code"])
    assert answer.status < 500 or found["code"] in ("rebuilding", "unknown-outcome", "unavailable")
    assert not [word for word in SECRETS if word in answer.body.lower()], answer.body
    code: str = found["code"]
    return code


async def ask(port: int, method: str, path: str, body: bytes = b"") -> Answer:
    """One request on a connection of its own, as one of many; status 0 when the connection broke."""
    try:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
    except OSError:
        return Answer(0, {}, b"")
    try:
        writer.write(request(method, path, body))
        head = await reader.readuntil(b"\r\n\r\n")
        length = re.search(rb"(?i)content-length: (\d+)", head)
        content = await reader.readexactly(int(length[1])) if length else b""
        return Answer(int(head.split()[1]), {}, content)
    except (OSError, asyncio.IncompleteReadError):
        return Answer(0, {}, b"")
    finally:
        writer.close()
