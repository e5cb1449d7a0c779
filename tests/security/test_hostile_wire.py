"""A hostile client below the HTTP interface: broken requests, bodies that end early, pages of other origins."""

import json
import socket
import time
from pathlib import Path

import pytest

from tests.security.hostile_room import EVENTS as E
from tests.security.hostile_room import NOTE, SESSIONS, Answer, request, send, told
from tests.security.test_hostile_http import BAD_REQUEST, REFUSED
from tests.server_process import ServerProcess, running_server

S = SESSIONS


@pytest.mark.parametrize("kind", [b"text/xml; charset=utf-16", b"multipart/form-data; boundary=x", b"\xff"])
def test_a_body_is_read_as_json_whatever_it_calls_itself(port: int, kind: bytes) -> None:
    assert send(port, request("POST", E, NOTE, [b"Content-Type: " + kind])).status == 201
    answer = send(port, request("POST", E, b"a=b", [b"Content-Type: " + kind]))
    assert (answer.status, told(answer)) == (400, "bad-request")


NO_HTTP: dict[str, bytes] = {
    "a TLS greeting": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",
    "HTTP/0.9": b"GET /healthz\r\n\r\n",
    "no host": b"GET /healthz HTTP/1.1\r\n\r\n",
    "a header without a colon": b"GET /healthz HTTP/1.1\r\nHost: x\r\nnone\r\n\r\n",
    "a NUL in a header": b"GET /healthz HTTP/1.1\r\nHost: x\r\nA: b\x00\r\n\r\n",
    "a NUL in a method": b"G\x00T / HTTP/1.1\r\nHost: x\r\n\r\n",
    "raw bytes in a path": b"GET /v1/sessions/\xc3\xa9 HTTP/1.1\r\nHost: x\r\n\r\n",
    "two lengths": request("POST", E, NOTE, [b"Content-Length: 44", b"Content-Length: 5"]),
    "a length below 0": request("POST", E, NOTE, [b"Content-Length: -1"]),
    "a length that is none": request("POST", E, NOTE, [b"Content-Length: 4x"]),
    "a chunk without a length": request("POST", E, b"zz\r\n", [b"Transfer-Encoding: chunked"]),
}


@pytest.mark.parametrize("data", NO_HTTP.values(), ids=NO_HTTP)
def test_what_is_no_http_is_refused_in_the_same_shape(port: int, data: bytes) -> None:
    answer = send(port, data)
    assert (answer.status, told(answer)) == (400, "bad-request")
    assert answer.headers["connection"] == "close"


@pytest.mark.parametrize("length", [b"100000000", b"99999999999999999999"])
def test_a_length_beyond_all_is_refused_before_the_body(port: int, length: bytes) -> None:
    answer = send(port, request("POST", E, NOTE, [b"Content-Length: " + length]))
    assert (answer.status, told(answer)) == (413, "too-large")


def test_a_body_that_ends_early_appends_nothing(port: int, server: ServerProcess) -> None:
    before = head(port)
    assert send(port, request("POST", E, NOTE, [b"Content-Length: 500"]), close=True).status in (0, 400)
    chunked = request("POST", E, b"2c\r\n" + NOTE[:10], [b"Transfer-Encoding: chunked"])
    assert send(port, chunked, close=True).status in (0, 400)
    answer = send(port, request("POST", E, NOTE, [b"Content-Length: 5"]))
    assert (answer.status, told(answer)) == (400, "bad-request")
    assert head(port) == before


def head(port: int) -> int:
    """The seq of the session's next event."""
    found: int = json.loads(send(port, request("GET", f"{S}/s/head")).body)["seq"]
    return found


def test_a_slow_body_holds_nobody_up(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as slow:
        slow.sendall(request("POST", E, b"", [b"Content-Length: %d" % len(NOTE)]))
        for byte in NOTE:
            slow.sendall(bytes([byte]))
            if byte == ord(":"):
                assert send(port, request("GET", f"{S}/s/head")).status == 200
            time.sleep(0.005)
        assert slow.recv(100).startswith(b"HTTP/1.1 201")


def test_a_second_request_behind_the_first_is_answered_too(port: int) -> None:
    with socket.create_connection(("127.0.0.1", port), timeout=20) as connection:
        connection.sendall(request("GET", "/healthz") * 3)
        received = b""
        while received.count(b"HTTP/1.1 200") < 3:
            piece = connection.recv(65_536)
            assert piece
            received += piece


@pytest.mark.parametrize(
    ("headers", "allowed"),
    [
        ([b"Origin: https://page.example"], False),
        ([b"Origin: null"], False),
        ([b"Origin: http://wiki"], False),
        ([b"Origin: http://localhost.page.example"], False),
        ([b"Origin: http://app.localhost:3000"], True),
        ([b"Origin: http://127.0.0.1.page.example"], False),
        ([b"Origin: http://[::1]:8750"], True),
        ([b"Origin: http://localhost:3000"], True),
        ([b"Origin: http://127.0.0.1:1"], True),
    ],
)
def test_a_page_of_another_origin_cannot_write_to_an_open_server(
    port: int, headers: list[bytes], allowed: bool
) -> None:
    answer = send(port, request("POST", E, NOTE, [*headers, b"Content-Type: text/plain"]))
    assert allowed == (answer.status == 201)
    assert allowed or (answer.status, told(answer)) == (403, "cross-origin")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        (b"page.example", False),
        (b"page.example:8750", False),
        (b"127.0.0.1.page.example", False),
        (b"0.0.0.0", False),
        (b"localhost:8750", True),
        (b"127.0.0.1", True),
        (b"[::1]:8750", True),
    ],
)
def test_a_name_that_anybody_may_point_at_this_machine_is_not_served_by_an_open_server(
    port: int, host: bytes, allowed: bool
) -> None:
    answer: Answer = send(port, b"GET %s/s/messages HTTP/1.1\r\nHost: %s\r\n\r\n" % (S.encode(), host))
    assert allowed == (answer.status == 200)
    assert allowed or told(answer) == "cross-origin"


def test_nothing_of_all_that_is_a_fault_in_the_servers_log(tmp_path: Path) -> None:
    with running_server(tmp_path / "data") as own:
        port = int(own.url.rpartition(":")[2])
        send(port, request("POST", S, b'{"id":"s"}'))
        for body in [*BAD_REQUEST.values(), *(body for body, _ in REFUSED.values())]:
            send(port, request("POST", E, body))
        for data in NO_HTTP.values():
            send(port, data)
        send(port, request("POST", E, NOTE, [b"Content-Length: 500"]), close=True)
        metrics = send(port, request("GET", "/metrics")).body
        assert own.process is not None
        own.process.terminate()
        _, errors = own.process.communicate(timeout=30)
        own.process = None
    assert b'code="internal"' not in metrics
    assert "Traceback" not in errors
    assert "ERROR" not in errors
