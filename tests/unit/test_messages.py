"""Messages that are shared and cannot be changed, and a cache that follows its surface."""

import copy
import json
import pickle
from collections.abc import Callable
from typing import Any

import pytest

from surfacelog.frozen import freeze
from surfacelog.messages import Message
from surfacelog.session import Session
from tests.unit.acts import image, offload, said, user

VALUE = {"role": "user", "content": [{"type": "text", "n": [1, {"x": None}]}]}
CHANGES: list[Callable[[Any], object]] = [
    lambda value: value.__setitem__("role", "x"),
    lambda value: value.__delitem__("role"),
    lambda value: value.update(role="x"),
    lambda value: value.pop("role"),
    lambda value: value.popitem(),
    lambda value: value.clear(),
    lambda value: value.setdefault("new", 1),
    lambda value: value.__ior__({"role": "x"}),
    lambda value: value.__init__(role="x"),
    lambda value: value["content"].append(1),
    lambda value: value["content"].extend([1]),
    lambda value: value["content"].insert(0, 1),
    lambda value: value["content"].pop(),
    lambda value: value["content"].remove(value["content"][0]),
    lambda value: value["content"].clear(),
    lambda value: value["content"].sort(),
    lambda value: value["content"].reverse(),
    lambda value: value["content"].__setitem__(0, 1),
    lambda value: value["content"].__delitem__(0),
    lambda value: value["content"].__iadd__([1]),
    lambda value: value["content"].__imul__(2),
    lambda value: value["content"].__init__([1]),
    lambda value: value["content"][0]["n"][1].__setitem__("x", 1),
]


@pytest.mark.parametrize("change", CHANGES)
def test_changing_a_message_raises(change: Callable[[Any], object]) -> None:
    message = Message(0, json.dumps(VALUE).encode())
    with pytest.raises(TypeError, match="cannot be changed"):
        change(message.value)
    assert message.value == VALUE


def test_a_message_itself_cannot_be_changed() -> None:
    message = Message(3, b"{}")
    for name in ("seq", "json", "value", "other"):
        with pytest.raises(AttributeError):
            setattr(message, name, 1)
        with pytest.raises(AttributeError):
            delattr(message, name)
    assert (message.seq, message.json) == (3, b"{}")
    assert message == Message(3, b"{}")
    assert len({message, Message(3, b"{}"), Message(4, b"{}")}) == 2


def test_a_frozen_value_is_read_like_any_other_and_copies_to_an_ordinary_one() -> None:
    frozen = freeze(VALUE)
    assert frozen == VALUE
    assert json.loads(json.dumps(frozen)) == VALUE
    for copied in (copy.deepcopy(frozen), pickle.loads(pickle.dumps(frozen))):  # noqa: S301 - our own bytes
        copied["role"] = "x"
    deep = copy.deepcopy(frozen)
    deep["content"][0]["n"].append(2)
    assert frozen == VALUE
    assert type(copy.copy(frozen)) is dict
    assert type(copy.copy(frozen["content"])) is list


def test_freezing_knows_no_depth() -> None:
    deep: Any = []
    for _ in range(5000):
        deep = [deep]
    frozen = freeze(deep)
    levels = 0
    while frozen:
        frozen, levels = frozen[0], levels + 1
    assert levels == 5000


def test_what_stays_is_the_same_object_and_the_whole_is_the_same_tuple() -> None:
    session = Session()
    session.append_many([user(said("a")), user(image())])
    first = session.messages
    assert session.messages is first
    session.append_many([user(said("b"))])
    assert [a is b for a, b in zip(first, session.messages, strict=False)] == [True, True]
    session.append_many([offload((1, [0]))])
    assert [message.seq for message in session.messages] == [0, 1, 2]
    assert session.messages[1].value["content"][0]["offloaded"] is True
    assert "offloaded" not in first[1].value["content"][0]


def test_a_cache_notices_that_appended_nodes_were_taken_back() -> None:
    session = Session()
    session.append_many([user(said("a"))])
    assert len(session.messages) == 1

    # Messages read in the middle of a batch that is refused afterwards.
    lines = list(session.lines)
    line = lines[0].replace(b'"seq":0', b'"seq":1')

    def batch() -> Any:
        yield line
        assert len(session.messages) == 2
        yield b"{}"

    with pytest.raises(Exception, match="envelope-invalid"):
        session.append_lines(batch())
    assert len(session.messages) == 1
    session.append_line(line.replace(b'"text":"a"', b'"text":"c"'))
    assert session.messages[1].value["content"][0]["text"] == "c"
