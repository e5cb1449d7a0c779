"""A hostile user of the HTTP interface is refused with stable codes: never a fault, never a hang."""

import json
from typing import Any

import pytest

from surfacelog.token import Token, read_token
from tests.security.hostile_room import EVENTS as E
from tests.security.hostile_room import NOTE, SESSIONS, request, send, told

S = SESSIONS
USER = {"type": "user/message", "data": {"id": "u", "role": "user", "content": []}, "surfaceOp": "append"}


def user(**fields: Any) -> bytes:
    """A user's message with something wrong in it."""
    return json.dumps(USER | fields).encode()


def note(field: str, value: str) -> bytes:
    """A note with one more field, or another one, whose value is JSON as it stands."""
    return b'{"type":"x/note","ignorable":true,"data":{},"%s":%s}' % (field.encode(), value.encode())


def wish(field: str, value: str) -> bytes:
    """Events with a setting beside them."""
    return b'{"events":[%s],"%s":%s}' % (NOTE, field.encode(), value.encode())


BAD_REQUEST: dict[str, bytes] = {
    "empty": b"",
    "cut": b"{",
    "null": b"null",
    "a number": b"1",
    "no events": b"[]",
    "events null": b'{"events":null}',
    "events an object": b'{"events":{}}',
    "no event": b"{}",
    "both ways": b'{"events":[],"type":"x/note","data":{}}',
    "two documents": NOTE + NOTE,
    "something behind": NOTE + b" x",
    "a comment": b'{"type":"x/note",/**/"data":{},"ignorable":true}',
    "NaN": note("data", "NaN"),
    "UTF-16": NOTE.decode().encode("utf-16"),
    "a byte order mark": b"\xef\xbb\xbf" + NOTE,
    "zeros": bytes(64),
    "bytes that are no UTF-8, in a name": b'{"type":"x/\xff","data":{},"ignorable":true}',
    "an expectation below 0": wish("expectedSeq", "-1"),
    "an expectation that is no integer": wish("expectedSeq", "1.0"),
    "an expectation as a text": wish("expectedSeq", '"0"'),
    "an expectation as a boolean": wish("expectedSeq", "true"),
    "an expectation beyond all": wish("expectedSeq", "9007199254740993"),
    "a timeout below 0": wish("timeoutMs", "-1"),
    "a timeout beyond all": wish("timeoutMs", "999999999"),
    "an unknown ack": wish("ack", '"none"'),
    "too many events": b"[%s]" % b",".join([NOTE] * 10_001),
}

REFUSED: dict[str, tuple[bytes, str]] = {
    "arrays without end": (b"[" * 100_000, "depth-exceeded"),
    "arrays and their ends": (b"[" * 100_000 + b"]" * 100_000, "depth-exceeded"),
    "objects without end": (b'{"a":' * 50_000, "depth-exceeded"),
    "deep data": (note("data", "[" * 600 + "]" * 600), "depth-exceeded"),
    "an event that is none": (b"[null]", "envelope-invalid"),
    "a seq of its own": (note("seq", "5"), "envelope-invalid"),
    "an unknown field": (note("tenant", '"other"'), "envelope-invalid"),
    "an infinite number": (note("data", "1e400"), "number-range"),
    "a negative zero": (note("data", "-0"), "number-negative-zero"),
    "an integer of 5,000 digits": (note("data", "9" * 5000), "number-range"),
    "an unknown type": (b'{"type":"x/note","data":{}}', "type-unknown"),
    "a time as a text": (note("time", '"1"'), "envelope-invalid"),
    "a time as a boolean": (note("time", "true"), "envelope-invalid"),
    "a time beyond all": (note("time", "9" * 30), "envelope-invalid"),
    "ignorable as a number": (b'{"type":"x/note","data":{},"ignorable":1}', "envelope-invalid"),
    "a surfaceOp as a number": (user(surfaceOp=1), "surface-op-invalid"),
    "a replace of nothing": (user(surfaceOp={"op": "replace"}), "replace-op-invalid"),
    "a replace below 0": (
        user(surfaceOp={"op": "replace", "startSeq": -1, "endSeq": 0}, sourceEventSeqs=[0]),
        "replace-op-invalid",
    ),
    "a replace of booleans": (
        user(surfaceOp={"op": "replace", "startSeq": False, "endSeq": False}, sourceEventSeqs=[0]),
        "replace-op-invalid",
    ),
    "sources as a text": (user(sourceEventSeqs="0"), "sources-not-array"),
    "sources in sources": (user(sourceEventSeqs=[[0]]), "sources-not-seqs"),
    "100,000 sources": (user(sourceEventSeqs=list(range(100_000))), "sources-not-earlier"),
    "content as an object": (user(data={"role": "user", "content": {}}), "message-invalid"),
    "content of numbers": (user(data={"role": "user", "content": [1]}), "message-invalid"),
    "data as a list": (user(data=[]), "message-invalid"),
}


@pytest.mark.parametrize("body", BAD_REQUEST.values(), ids=BAD_REQUEST)
def test_a_body_that_cannot_be_read_is_a_bad_request(port: int, body: bytes) -> None:
    answer = send(port, request("POST", E, body))
    assert (answer.status, told(answer)) == (400, "bad-request")


@pytest.mark.parametrize(("body", "code"), REFUSED.values(), ids=REFUSED)
def test_an_event_that_may_not_be_is_refused_by_its_rule(port: int, body: bytes, code: str) -> None:
    answer = send(port, request("POST", E, body))
    assert (answer.status, told(answer)) == (422, code)


@pytest.mark.parametrize(
    "data", [b'"\xff"', b'"\xc0\xaf"', b'"\xed\xa0\x80"'], ids=["stray", "overlong", "surrogate"]
)
def test_data_that_is_no_utf_8_is_refused(port: int, data: bytes) -> None:
    answer = send(port, request("POST", E, b'{"type":"x/note","ignorable":true,"data":%s}' % data))
    assert (answer.status, told(answer)) == (400, "json-invalid")


@pytest.mark.parametrize(
    ("field", "value", "code"),
    [
        ("id", "1", "bad-request"),
        ("id", '""', "malformed"),
        ("id", '"\\ud800"', "bad-request"),
        ("id", f'"{"x" * 513}"', "malformed"),
        ("openId", '"x"', "bad-request"),
        ("openId", f'"{"0" * 5000}"', "bad-request"),
        ("contract", '"v9"', "bad-request"),
        ("checks", '"none"', "bad-request"),
        ("vocabulary", "[1]", "bad-request"),
        ("vocabulary", json.dumps([f"x/{number}" for number in range(5000)]), "malformed"),
        ("vocabulary", '["user/message"]', "malformed"),
        ("vocabulary", '[""]', "malformed"),
        ("createdAt", "1e30", "bad-request"),
        ("createdAt", str(2**70), "bad-request"),
        ("delegationDepth", "-5", "bad-request"),
        ("isSeeded", '"yes"', "bad-request"),
        ("parentSession", "{}", "bad-request"),
        ("inheritedEventCount", "5", "bad-request"),
        ("rules", "2", "bad-request"),
        ("tenant", '"other"', "bad-request"),
    ],
)
def test_a_session_that_cannot_be_made_as_asked_is_not_made(port: int, field: str, value: str, code: str) -> None:
    answer = send(port, request("POST", S, b'{"%s":%s}' % (field.encode(), value.encode())))
    assert (answer.status, told(answer)) == (400, code)


def test_a_body_that_should_be_small_is_not_read_to_its_end(port: int) -> None:
    vocabulary = json.dumps({"vocabulary": [f"x/{number}" for number in range(50_000)]}).encode()
    answer = send(port, request("POST", S, vocabulary))
    assert (answer.status, told(answer)) == (413, "too-large")


def test_a_nul_in_an_id_is_a_character_like_any_other(port: int) -> None:
    send(port, request("POST", S, b'{"id":"a\\u0000b"}'))
    assert send(port, request("POST", f"{S}/a%00b/events", NOTE)).status == 201
    assert told(send(port, request("GET", f"{S}/a/messages"))) == "no-session"


@pytest.mark.parametrize("route", ["claim", "resume", "fork"])
@pytest.mark.parametrize(
    "body",
    [b"", b"null", b"{}", b"\xff", b'{"owner":1}', b'{"owner":""}', b'{"owner":"a","leaseMs":-1}'],
    ids=repr,
)
def test_a_run_that_cannot_be_is_refused(port: int, route: str, body: bytes) -> None:
    answer = send(port, request("POST", f"{S}/s/{route}", body))
    assert (answer.status, told(answer)) == (400, "bad-request")


@pytest.mark.parametrize("fence", [b"x", b":", b"-1:a:b", b"9" * 400 + b":a:b", b"\xff", b"1:" + b"a" * 5000])
def test_a_fence_of_nobodys_lets_nobody_in(port: int, fence: bytes) -> None:
    answer = send(port, request("POST", E, NOTE, [b"Surfacelog-Claim: " + fence]))
    assert (answer.status, told(answer)) == (409, "fenced")


@pytest.mark.parametrize(
    ("path", "status", "code"),
    [
        ("/", 404, "no-route"),
        ("//", 404, "no-route"),
        (f"{S}/", 404, "no-route"),
        (f"{S}//messages", 404, "no-route"),
        (f"{S}/s/messages/", 404, "no-route"),
        (f"{S}/../sessions/s/messages", 404, "no-route"),
        (f"{S}/../../etc/passwd", 404, "no-route"),
        ("http://elsewhere/v1/sessions/s/messages", 404, "no-route"),
        (f"{S}/%2e%2e/messages", 404, "no-session"),
        (f"{S}/s%2Fmessages", 404, "no-session"),
        (f"{S}/73/messages", 404, "no-session"),
        (f"{S}/%00/messages", 404, "no-session"),
        (f"{S}/%/messages", 400, "malformed"),
        (f"{S}/%zz/messages", 400, "malformed"),
        (f"{S}/%ff/messages", 400, "malformed"),
        (f"{S}/{'a' * 513}/messages", 400, "malformed"),
        (f"{S}/{'a' * 60_000}/messages", 400, "malformed"),
    ],
)
def test_a_path_leads_where_it_says_or_nowhere(port: int, path: str, status: int, code: str) -> None:
    answer = send(port, request("GET", path))
    assert (answer.status, told(answer)) == (status, code)


@pytest.mark.parametrize("method", ["PUT", "PATCH", "TRACE", "BREW", "get"])
@pytest.mark.parametrize("path", [S, E, f"{S}/s/messages", "/healthz"])
def test_a_method_that_a_path_does_not_take_is_told_so(port: int, method: str, path: str) -> None:
    answer = send(port, request(method, path, NOTE))
    assert (answer.status, told(answer)) == (405, "method-not-allowed")
    assert answer.headers["allow"]


def test_head_and_options_are_answered_without_a_body(port: int) -> None:
    assert send(port, request("HEAD", f"{S}/s/messages")).status == 405
    options = send(port, request("OPTIONS", f"{S}/s/messages"))
    assert (options.status, options.body) == (204, b"")
    assert "access-control-allow-origin" not in options.headers


@pytest.mark.parametrize("value", ["-1", "x", "", "1e3", "+1", "1_0", "%D9%A3", "%00", "9" * 20, "1&min_seq=2"])
def test_a_query_that_is_no_number_or_two_is_refused(port: int, value: str) -> None:
    for what in ("messages", "head", "surface", "events", "transcript", ""):
        answer = send(port, request("GET", f"{S}/s/{what}".rstrip("/") + f"?min_seq={value}"))
        assert (answer.status, told(answer)) == (400, "bad-request"), what


@pytest.mark.parametrize("query", ["expectedSeq=-1", "expectedSeq=1.0", "expectedSeq=0&expectedSeq=1", "since=x"])
def test_a_wish_in_the_query_of_an_append_is_read_as_strictly(port: int, query: str) -> None:
    answer = send(port, request("POST", f"{E}?{query}", NOTE))
    assert (answer.status, told(answer)) == (400, "bad-request")


@pytest.mark.parametrize("text", ["x", "A" * 50_000, "WzFd", "bnVsbA", "eyJhIjoxfQ", "%00", "%ff"])
def test_what_is_no_token_is_refused(port: int, text: str) -> None:
    answer = send(port, request("GET", f"{S}/s/messages?after={text}"))
    assert (answer.status, told(answer)) == (400, "malformed")


def test_a_forged_token_shows_no_less_than_there_is(port: int) -> None:
    own = read_token(json.loads(send(port, request("GET", f"{S}/s/messages")).body)["token"])
    forged = Token(own.open_id, own.version, own.seq, own.generation, own.nonce, own.count + 10**6)
    answer = send(port, request("GET", f"{S}/s/messages?after={forged.encode()}"))
    assert (answer.status, told(answer)) == (400, "malformed")
    ahead = Token(own.open_id, own.version, own.seq + 10**6, own.generation, own.nonce, own.count)
    answer = send(port, request("GET", f"{S}/s/messages?wait_ms=50&after={ahead.encode()}"))
    assert (answer.status, told(answer)) == (503, "rebuilding")


def test_a_token_of_another_session_brings_all_of_this_one(port: int) -> None:
    send(port, request("POST", S, b'{"id":"t"}'))
    other = json.loads(send(port, request("GET", f"{S}/t/messages")).body)["token"]
    found = json.loads(send(port, request("GET", f"{S}/s/messages?after={other}")).body)
    assert found["rebuilt"]


@pytest.mark.parametrize(
    "etag", [b"*", b'"x"', b"W/", b'"', b",,,", b"\xff", b'"' + b"a" * 30_000, b"a," * 20_000]
)
def test_an_etag_that_is_none_of_ours_matches_nothing(port: int, etag: bytes) -> None:
    answer = send(port, request("GET", f"{S}/s/messages", headers=[b"If-None-Match: " + etag]))
    assert answer.status == 200


@pytest.mark.parametrize("name", [b"Idempotency-Key", b"Surfacelog-Claim", b"Authorization"])
def test_a_header_that_decides_may_stand_there_once(port: int, name: bytes) -> None:
    answer = send(port, request("POST", E, NOTE, [name + b": a", name + b": b"]))
    assert (answer.status, told(answer)) == (400, "bad-request")


@pytest.mark.parametrize("key", [b"", b"k" * 513])
def test_an_idempotency_key_has_a_length(port: int, key: bytes) -> None:
    answer = send(port, request("POST", E, NOTE, [b"Idempotency-Key: " + key]))
    assert (answer.status, told(answer)) == (400, "bad-request")
