"""Envelopes: which lines are events, what stays of them byte for byte, and that every later read agrees."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from surfacelog.errors import ContractError
from surfacelog.events import (
    Draft,
    check_line,
    decode_event,
    encode_line,
    read_data,
    read_draft,
    read_event,
    read_lines,
    values_of,
)
from tests.unit.test_lossless import json_texts

GOOD = b'{"type":"todo/write","seq":3,"time":-5,"data":{"a":1}}'
REFUSED = {
    b'{"type":"a","seq":0,"time":0}': "envelope-invalid",
    b'{"seq":0,"time":0,"data":{}}': "envelope-invalid",
    b'{"type":1,"seq":0,"time":0,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":true,"time":0,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":1.0,"time":0,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":1.0,"time":0,"data":"\\ud800"}': "envelope-invalid",
    b'{"type":"a","seq":-1,"time":0,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":-1,"time":0,"data":"\\ud800"}': "envelope-invalid",
    b'{"type":"a","seq":9007199254740992,"time":0,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":9007199254740992,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":null,"data":{}}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":0,"data":{},"id":1}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":0,"data":{},"\\ud800":1}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":0,"data":{},"ignorable":false}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":0,"data":"\\ud800","ignorable":false}': "envelope-invalid",
    b'{"type":"a","seq":0,"time":0,"data":{},"ignorable":1}': "envelope-invalid",
    b"[]": "envelope-invalid",
    b"null": "envelope-invalid",
    b"{}": "envelope-invalid",
    GOOD + b"x": "json-invalid",
    b"": "json-invalid",
    b'{"type":"a","seq":0,"time":0,"data":{"x":1e400}}': "number-range",
    b'{"type":"a","seq":-0,"time":0,"data":{}}': "number-negative-zero",
    b'{"type":"a","seq":0,"time":0,"data":{"x":[-0]}}': "number-negative-zero",
    b'{"type":"a","seq":0,"time":0,"data":1e999,"data":1}': "number-range",
    b'{"type":"a","seq":0,"time":0,"data":"\xff","data":1}': "json-invalid",
    b'{"type":"a","seq":0,"time":0,"data":1,"surfaceOp":{"op":-0}}': "number-negative-zero",
    b'{"type":"a","seq":0,"time":0,"data":' + b"[" * 513 + b"]" * 513 + b"}": "depth-exceeded",
}


@pytest.mark.parametrize("line", REFUSED, ids=lambda line: repr(line[:60]))
def test_a_line_that_is_no_event_is_refused_with_its_code(line: bytes) -> None:
    for reader in (read_event, check_line):
        with pytest.raises(ContractError) as refusal:
            reader(line)
        assert refusal.value.code == REFUSED[line]


def test_data_is_the_bytes_that_came_in() -> None:
    data = b'{ "z":1.0, "a" : "\\ud800\\u0000\xe2\x80\xa8", "n":9007199254740993 ,"a":2e3}'
    event = read_event(b'{"type":"a","seq":0,"time":0,"data":' + data + b',"surfaceOp": "append" }')
    assert bytes(event.data) == data
    assert event.surface_op is not UNSET
    assert bytes(event.surface_op) == b'"append"'


def test_the_last_of_double_keys_counts() -> None:
    event = read_event(b'{"type":"b","type":"a","seq":9,"seq":0,"time":0,"data":1,"data":{}}')
    assert (event.type, event.seq, bytes(event.data)) == ("a", 0, b"{}")


def test_depth_is_measured_on_data() -> None:
    data = b"[" * 512 + b"]" * 512
    assert bytes(read_event(b'{"type":"a","seq":0,"time":0,"data":' + data + b"}").data) == data


def test_only_a_newline_ends_a_line() -> None:
    text = "a\u2028b\u2029c\u0085d\x0b\x0c".encode()
    assert read_lines(text + b"\n" + text) == [text, text]
    assert read_lines(text + b"\n") == [text]
    assert read_lines(b"a\r\n\nb") == [b"a\r", b"", b"b"]
    assert read_lines(b"") == []


def test_newlines_between_tokens_become_spaces() -> None:
    line = encode_line(Draft("a", Raw(b'{\n"a":\r\n"\\n"}')), 0, 0)
    assert line == b'{"type":"a","seq":0,"time":0,"data":{ "a":  "\\n"}}'


def test_a_line_names_only_what_the_draft_has() -> None:
    whole = Draft("a", Raw(b"1"), 7, True, Raw(b"null"), Raw(b"[ 0]"))
    assert encode_line(whole, 4, 7) == (
        b'{"type":"a","seq":4,"time":7,"data":1,"ignorable":true,"surfaceOp":null,"sourceEventSeqs":[ 0]}'
    )


@pytest.mark.parametrize("name", ['a"b', "a\\b", "é", "\ud800", "", "a\nb", "\x00"])
def test_any_type_name_comes_back(name: str) -> None:
    line = encode_line(Draft(name, Raw(b"1")), 0, 0)
    assert b"\n" not in line
    assert read_event(line).type == name


def test_a_draft_is_an_envelope_without_a_number() -> None:
    draft = read_draft(b'{"type":"a","data":{"x":"\\udfff"},"time":5}')
    assert (draft.type, draft.time, draft.surface_op) == ("a", 5, UNSET)
    for text in (b'{"type":"a","data":1,"seq":0}', b'{"type":"a"}', b'{"type":"a","data":NaN}', b"[]"):
        with pytest.raises(ContractError):
            read_draft(text)


def test_floats_with_the_value_of_an_integer_are_read_as_integers() -> None:
    value = read_data(b"[1.0,1e2,0.5]")
    assert value == [1, 100, 0.5]
    assert [type(item) for item in value] == [int, int, float]


LONG = b'{"tools":"' + b"x" * 8000 + b'"}'
LINE = b'{"type":"request/header","seq":%d,"time":0,"data":%s}'


def _fields(line: bytes) -> tuple[Any, ...]:
    event, values = read_event(line), check_line(line)
    assert (values.type, values.seq, values.time) == (event.type, event.seq, event.time)
    return values.type, values.seq, bytes(event.data)


def test_long_data_that_was_checked_is_recognised_only_as_it_was() -> None:
    assert _fields(LINE % (0, LONG)) == ("request/header", 0, LONG)
    assert check_line(LINE % (1, LONG)).data == LONG
    assert _fields(LINE % (1, LONG)) == ("request/header", 1, LONG)
    broken = LONG[:-2] + b"\xff}"
    for line in (
        LINE % (2, broken),
        LINE % (2, LONG[:-1]),
        LINE % (2, LONG) + b"}",
        (LINE % (2, LONG))[:-1] + b',"seq":-1}',
        (LINE % (2, LONG))[:-1] + b',"data":-0}',
        (LINE % (2, LONG))[:-1] + b',"other":1}',
        LINE.replace(b"%d", b"02") % LONG,
    ):
        with pytest.raises(ContractError):
            check_line(line)
    twice = (LINE % (2, LONG))[:-1] + b',"data":{"tools":1}}'
    assert check_line(twice).data == {"tools": 1}


def test_long_data_is_never_taken_from_half_a_value() -> None:
    # The bytes up to the last brace are no value of their own here, though they look like one.
    line = b'{"type":"a","seq":0,"time":0,"data":' + LONG + b',"surfaceOp":' + LONG + b"}"
    assert check_line(line).data == {"tools": "x" * 8000}
    half = LONG + b',"surfaceOp":' + LONG
    with pytest.raises(ContractError):
        check_line(b'{"type":"a","seq":0,"time":0,"data":' + half + b',"time":true}')
    assert check_line(line).surface_op == {"tools": "x" * 8000}


@given(json_texts(), json_texts(), st.booleans())
def test_whatever_an_append_accepts_every_later_read_accepts_too(data: str, op: str, with_op: bool) -> None:
    draft = Draft("a", Raw(data.encode()), surface_op=Raw(op.encode()) if with_op else UNSET)
    try:
        line = encode_line(draft, 3, 4)
    except ContractError:
        return
    assert b"\n" not in line
    event = read_event(line)
    again = decode_event(line)
    assert bytes(event.data) == bytes(again.data)
    assert bytes(event.data) == data.strip(" \t\r\n").replace("\n", " ").replace("\r", " ").encode()
    values = check_line(line)
    assert values.data == read_data(data.encode()) == values_of(event).data
    if with_op:
        assert values.surface_op == read_data(op.encode()) == values_of(event).surface_op


@given(json_texts())
def test_a_line_is_accepted_exactly_when_its_data_is(data: str) -> None:
    line = b'{"type":"a","seq":3,"time":4,"data":' + data.encode() + b"}"
    try:
        read_data(data.encode())
    except ContractError:
        with pytest.raises(ContractError):
            check_line(line)
    else:
        assert check_line(line).data == read_data(data.encode())
