"""Derived messages: slices of the bytes that came in, and offloads that give the same bytes in any order."""

from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog import lossless
from surfacelog.derive import derive, is_empty, offload
from surfacelog.events import read_event


def event(kind: str, data: bytes, op: bytes = b'"append"') -> bytes | None:
    line = b'{"type":"%b","seq":0,"time":0,"data":%b,"surfaceOp":%b}' % (kind.encode(), data, op)
    return derive(read_event(line))


def test_a_user_message_is_its_data_byte_for_byte() -> None:
    data = b'{ "content" :[{"type":"text","text":"\\ud800 \xe2\x9c\x93", "n":1.0}], "role":"user" }'
    assert event("user/message", data) == data


@pytest.mark.parametrize("kind", ["system/message", "developer/message", "assistant/message", "tool/result"])
def test_other_messages_are_data_message_byte_for_byte(kind: str) -> None:
    message = b'{"role":"x" , "content": [ {"type":"text","text":"\\u0000"}], "z":9007199254740993}'
    assert event(kind, b'{"message":{"content":[]},"turn":1, "message": ' + message + b"}") == message
    surrogate = message.replace(b"\\u0000", b"\\udfff")
    assert event(kind, b'{"message": ' + surrogate + b" }") == surrogate


@pytest.mark.parametrize("content", [b"[]", b"[ ]", b"[\t \n]"])
def test_an_empty_message_derives_for_users_and_tools_only(content: bytes) -> None:
    message = b'{"content":' + content + b"}"
    assert event("user/message", message) == message
    assert event("tool/result", b'{"message":' + message + b"}") == message
    for kind in ("system/message", "developer/message", "assistant/message"):
        assert event(kind, b'{"message":' + message + b"}") is None
        assert is_empty(message)


def test_content_of_empty_blocks_is_not_empty() -> None:
    assert not is_empty(b'{"content":[{}]}')
    assert not is_empty(b'{"content":[ [] ]}')
    assert not is_empty(b'{"x":"\\ud800","content":[{}]}')


def test_other_events_derive_to_nothing() -> None:
    assert derive(read_event(b'{"type":"tool/call","seq":0,"time":0,"data":{"message":{"content":[1]}}}')) is None


MESSAGE = (
    b'{"role":"user", "content":[{"type":"image","n":0}, {"type":"text","text":"\\ud800"},{ "type" :"image" },'
    b'{"type":"\\u0069mage","offloaded":false,"x":[1 ,2]}, [], 7],"z":1.0}'
)


def test_an_offload_marks_the_chosen_images_and_leaves_the_rest() -> None:
    assert offload(MESSAGE, [0, 2]) == (
        b'{"role":"user","content":[{"type":"image","n":0,"offloaded":true},{"type":"text","text":"\\ud800"},'
        b'{ "type" :"image" },{"type":"\\u0069mage","offloaded":true,"x":[1 ,2]},[],7],"z":1.0}'
    )


@pytest.mark.parametrize("message", [MESSAGE, MESSAGE.replace(b"\\ud800", b"plain")], ids=["surrogate", "plain"])
def test_offloads_give_the_same_bytes_in_any_order(message: bytes) -> None:
    whole = offload(message, [0, 1, 2])
    for order in permutations(range(3)):
        step = message
        for index in order:
            step = offload(step, [index])
        assert step == whole
    assert offload(offload(message, [2, 0]), [1]) == whole


@given(
    st.lists(st.sampled_from(['{"type":"image"}', '{"type":"text"}', '{"type":"image","\\ud800":1}']), max_size=6),
    st.sets(st.integers(0, 5)),
)
def test_an_offload_changes_only_its_images(blocks: list[str], indexes: set[int]) -> None:
    message = ('{"content":[' + " , ".join(blocks) + '],"k":"v"}').encode()
    before, after = lossless.read(message), lossless.read(offload(message, indexes))
    images = [block for block in before["content"] if block["type"] == "image"]
    for index in indexes:
        if index < len(images):
            images[index]["offloaded"] = True
    assert after == before
