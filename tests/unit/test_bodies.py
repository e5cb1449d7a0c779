"""Request bodies: their shapes, and a limit that holds while reading."""

import asyncio
from collections.abc import AsyncIterator

import pytest

from gateway.bodies import BodyReader, read_append, read_body, read_claim_wish, read_opening
from surfacelog.errors import ContractError, ProtocolError


async def chunks(count: int, seen: list[int], size: int = 100) -> AsyncIterator[bytes]:
    for number in range(count):
        seen.append(number)
        yield b"x" * size


@pytest.mark.parametrize("length", [None, "100000", "99999999999"])
async def test_a_body_beyond_the_limit_is_too_large(length: str | None) -> None:
    with pytest.raises(ProtocolError) as refusal:
        await read_body(chunks(1000, []), length, 250)
    assert refusal.value.code == "too-large"


async def test_a_body_that_announces_far_too_much_is_not_read_at_all() -> None:
    seen: list[int] = []
    with pytest.raises(ProtocolError):
        await read_body(chunks(1, seen), str(1 << 40), 250)
    assert seen == []


async def test_a_body_without_end_is_given_up() -> None:
    seen: list[int] = []
    with pytest.raises(ProtocolError):
        await read_body(chunks(10**9, seen, size=1 << 20), None, 250)
    assert len(seen) < 70


async def test_a_body_of_exactly_the_limit_passes() -> None:
    assert await read_body(chunks(2, []), "200", 200) == b"x" * 200


async def test_others_go_on_while_a_long_body_is_read() -> None:
    steps = 0

    async def others() -> None:
        nonlocal steps
        while True:
            await asyncio.sleep(0.001)
            steps += 1

    reader, going = BodyReader(), asyncio.create_task(others())
    event = b'{"type":"x","data":["a",1,2,3,{"b":[%b0]}]},' % (b"[1]," * 50)
    body = b'[%b{"type":"x","data":["\\ud800"]}]' % (event * 9_999)
    wish = await reader.read(body)
    assert len(wish.drafts) == 10_000
    # On the event loop itself it would be none.
    assert steps > 2
    going.cancel()
    reader.close()


@pytest.mark.parametrize("form", [b"[%b]", b'{"events":[%b]}'])
def test_a_body_of_too_many_strange_events_is_refused_before_they_are_looked_into(form: bytes) -> None:
    with pytest.raises(ProtocolError) as refusal:
        read_append(form % (b'["\\ud800"],' * 10_000 + b"0"))
    assert (refusal.value.code, refusal.value.detail) == ("bad-request", {"events": 10_001})


def test_one_event_a_list_and_an_object_of_events_mean_the_same() -> None:
    event = b'{"type":"user/message","data": {"b" : 1.0, "a":"\\ud800"},"surfaceOp":"append"}'
    one = read_append(event)
    many = read_append(b"[" + event + b"]")
    named = read_append(b'{"events":[' + event + b'],"expectedSeq":0,"ack":"logged","timeoutMs":5}')
    assert one.drafts == many.drafts == named.drafts
    assert bytes(one.drafts[0].data) == b'{"b" : 1.0, "a":"\\ud800"}'
    assert (named.expected_seq, named.ack, named.timeout_ms) == (0, "logged", 5)
    assert (one.expected_seq, one.ack, one.timeout_ms) == (None, None, None)


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"nonsense",
        b"1",
        b"null",
        b'"text"',
        b"{}",
        b'{"type":"a"}',
        b'{"data":1}',
        b'{"events":3}',
        b'{"events":[],"unheard":3}',
        b'{"type":"a","data":1,"events":[]}',
        b'{"type":"a","data":1,"expectedSeq":1}',
        b'{"events":[],"ack":"maybe"}',
        b'{"type":"a","data":1}x',
        b'{"type":"a","data":NaN}',
        b'{"type":"\xff","data":1}',
    ],
)
def test_an_append_that_cannot_be_read_is_a_bad_request(body: bytes) -> None:
    with pytest.raises(ProtocolError) as refusal:
        read_append(body)
    assert refusal.value.code == "bad-request"


@pytest.mark.parametrize(
    ("event", "code"),
    [
        (b'{"type":1,"data":1}', "envelope-invalid"),
        (b'{"type":"a","data":1,"seq":3}', "envelope-invalid"),
        (b'{"type":"a","data":1,"unheard":3}', "envelope-invalid"),
        (b'{"type":"a","data":1,"time":1.5}', "envelope-invalid"),
        (b'{"type":"a","data":' + b"[" * 5000 + b"]" * 5000 + b"}", "depth-exceeded"),
    ],
)
def test_an_event_that_no_session_takes_is_told_by_its_code(event: bytes, code: str) -> None:
    for body in (event, b"[" + event + b"]", b'{"events":[' + event + b"]}"):
        with pytest.raises(ContractError) as refusal:
            read_append(body)
        assert refusal.value.code == code


def test_an_opening_without_a_body_asks_for_the_defaults() -> None:
    assert read_opening(b" ").checks == "paired"


@pytest.mark.parametrize("body", [b"[]", b'{"rules":2}', b'{"contract":"v9"}', b'{"inheritedEventCount":1}'])
def test_an_opening_cannot_set_what_is_not_its_own(body: bytes) -> None:
    with pytest.raises(ProtocolError):
        read_opening(body)


def test_a_claim_names_its_owner() -> None:
    with pytest.raises(ProtocolError):
        read_claim_wish(b"{}")
    assert read_claim_wish(b'{"owner":"me"}').takeover is False
