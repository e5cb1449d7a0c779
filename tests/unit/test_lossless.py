"""Lossless JSON: what is refused, what survives, and that both readers agree on every text."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog import lossless
from surfacelog.errors import ContractError
from surfacelog.walk import walk

REFUSED = {
    b"": "json-invalid",
    b" ": "json-invalid",
    b"[1,]": "json-invalid",
    b'{"a":1,}': "json-invalid",
    b'{"a"}': "json-invalid",
    b"[}": "json-invalid",
    b"1 2": "json-invalid",
    b"01": "json-invalid",
    b"1.": "json-invalid",
    b"+1": "json-invalid",
    b"NaN": "json-invalid",
    b"[-Infinity]": "json-invalid",
    b"'a'": "json-invalid",
    b'"a\nb"': "json-invalid",
    b'"\\x"': "json-invalid",
    b'"\x80"': "json-invalid",
    b'"\xed\xa0\x80"': "json-invalid",
    b"\xef\xbb\xbf1": "json-invalid",
    b"1e400": "number-range",
    b"[-1e999]": "number-range",
    b"1" * 4301: "number-range",
    b"-" + b"1" * 4301: "number-range",
    b"-0": "number-negative-zero",
    b'{"a":-0}': "number-negative-zero",
    b"[-0.0]": "number-negative-zero",
    b"[1, -0e7]": "number-negative-zero",
    b"-1e-400": "number-negative-zero",
    b'{"a":-0,"a":1}': "number-negative-zero",
    b"[" * 513 + b"]" * 513: "depth-exceeded",
    b'{"a":' * 513 + b"1" + b"}" * 513: "depth-exceeded",
    b'{"a":' + b"[" * 512 + b"]" * 512 + b',"a":1}': "depth-exceeded",
    b"[" * 100_000: "depth-exceeded",
}
KEPT = [
    b"0",
    b"-0.5",
    b"-1",
    b'"-0"',
    b'{"a":"x, -0 ]"}',
    b'"\\ud800"',
    b'{"\\udc00":["\\ud800\\ud800"]}',
    b'"\\u0000"',
    '"\u2028\u2029\u0085"'.encode(),
    b"9007199254740993",
    b"-" + b"9" * 4300,
    b"1e-400",
    b"1.7976931348623157e308",
    b' { "a" : [ 1 ,\r\n{ } ] }\t',
    b"[" * 512 + b"]" * 512,
    b'"' + b"[" * 2000 + b'"',
    b"[" + b",".join([b"[]"] * 2000) + b"]",
]


def _carefully(text: bytes) -> Any:
    return lossless._read_carefully(text, lossless.DEPTH_MAX)  # noqa: SLF001 - the second reader, for every text


def _slowly(text: bytes) -> Any:
    """As the third reader has it, which is met only on a deep stack."""
    lossless._prepare(text, lossless.DEPTH_MAX)  # noqa: SLF001 - its checks come before either reader
    return walk(text)[0]


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:20]))
def test_what_is_not_lossless_json_is_refused_by_both_readers(text: bytes) -> None:
    for reader in (lossless.check, lossless.read, _carefully, _slowly, lossless.members, lossless.elements):
        with pytest.raises(ContractError) as refusal:
            reader(text)
        assert refusal.value.code == REFUSED[text]


@pytest.mark.parametrize("text", KEPT, ids=lambda text: repr(text[:20]))
def test_what_is_lossless_json_is_read_alike_by_both_readers(text: bytes) -> None:
    lossless.check(text)
    value = lossless.read(text)
    assert value == _carefully(text) == _slowly(text)
    assert lossless.canonical(value) == lossless._canonical_slowly(value)  # noqa: SLF001 - both writers are compared


def test_deep_data_is_read_on_a_deep_stack() -> None:
    text = b"[" * 512 + b"]" * 512

    def dive(levels: int) -> bytes:
        return dive(levels - 1) if levels else lossless.canonical(lossless.read(text))

    assert dive(700) == text


def test_members_and_elements_are_slices_of_the_text() -> None:
    text = b' {"b" : [ 1 , {"x":"\\ud800"} ] ,\n"a":-0.50e1, "b":"\\u0041" } '
    assert lossless.members(text) == {"b": b'"\\u0041"', "a": b"-0.50e1"}
    assert lossless.elements(b'[ 1.0 , {"x" : [2]} ,[] ]') == [b"1.0", b'{"x" : [2]}', b"[]"]
    assert lossless.members(b"[]") is None
    assert lossless.elements(b"{}") is None


def test_canonical_text_is_equal_exactly_for_equal_values() -> None:
    def canonical(text: bytes) -> bytes:
        return lossless.canonical(lossless.read(text))

    assert canonical(b'{"a":1,"b":[1.0,1e2]}') == canonical(b' {"b":[1,100],"a":1.0}')
    assert canonical(b'"\\u00e9"') == canonical('"é"'.encode())
    different = [b"1", b"true", b'"1"', b"[1]", b"null", b"0", b"false", b"9007199254740993", b"9007199254740992"]
    different += [b'"\\ud800"', b'"\\udc00"', b"{}", b"[]", b'{"1":1}', b"1" * 400, b"1" * 399 + b"2", b"0.1"]
    assert len({canonical(text) for text in different}) == len(different)


BLANKS = st.text(alphabet=" \t\r\n", max_size=3)
STRINGS = st.one_of(
    st.text(max_size=6),
    st.text(alphabet=st.characters(categories=["Cs"]), min_size=1, max_size=2),
    st.sampled_from(["-0", "a -0,", "{[", "\x00", "\u2028", "😀"]),
)
NUMBERS = st.one_of(
    st.integers().map(str),
    st.integers(min_value=10**30, max_value=10**60).map(str),
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.sampled_from(["-0", "1e400", "-0.0", "1E5", "0.1e+3", "-1e-400", "1e-400", "-0.5", "00", "1.", "-"]),
)


@st.composite
def json_texts(draw: st.DrawFn, depth: int = 3) -> str:
    def blank() -> str:
        return draw(BLANKS)

    def string() -> str:
        value = draw(STRINGS)
        plain = json.dumps(value, ensure_ascii=draw(st.booleans()) or not value.isprintable())
        return plain if plain.isascii() or "\ud7ff" >= max(value) else json.dumps(value)

    kind = draw(
        st.sampled_from(["string", "number", "word", "array", "object"] if depth else ["string", "number"])
    )
    if kind == "string":
        text = string()
    elif kind == "number":
        text = draw(NUMBERS)
    elif kind == "word":
        text = draw(st.sampled_from(["true", "false", "null", "NaN"]))
    else:
        items = [draw(json_texts(depth=depth - 1)) for _ in range(draw(st.integers(0, 3)))]
        if kind == "array":
            text = "[" + (blank() + ",").join(items) + blank() + "]"
        else:
            keys = [draw(st.sampled_from(['"a"', '"b"', string()])) for _ in items]
            text = (
                "{"
                + ",".join(f"{blank()}{key}{blank()}:{item}" for key, item in zip(keys, items, strict=True))
                + "}"
            )
    return blank() + text + blank()


def _plainly(text: str) -> Any:
    """What Python's own reader makes of the text, with the same numbers refused."""

    def number(digits: str) -> float:
        value = float(digits)
        if math.isinf(value) or (value == 0 and digits.startswith("-")):
            raise ValueError
        return value

    def integer(digits: str) -> int:
        if digits == "-0":
            raise ValueError
        return int(digits)

    def constant(name: str) -> Any:
        raise ValueError(name)

    return json.loads(text, parse_float=number, parse_int=integer, parse_constant=constant)


@given(json_texts())
def test_both_readers_accept_and_read_just_what_pythons_own_does(text: str) -> None:
    raw = text.encode()
    try:
        expected = _plainly(text)
    except ValueError:
        for reader in (lossless.check, lossless.read, _carefully, _slowly, lossless.members, lossless.elements):
            with pytest.raises(ContractError):
                reader(raw)
        return
    assert lossless.read(raw) == _carefully(raw) == _slowly(raw) == expected
    assert lossless.canonical(lossless.read(raw)) == lossless._canonical_slowly(_slowly(raw))  # noqa: SLF001
    members = lossless.members(raw)
    if members is not None:
        assert {key: lossless.read(value) for key, value in members.items()} == expected
    elements = lossless.elements(raw)
    if elements is not None:
        assert [lossless.read(value) for value in elements] == expected


@given(st.binary(max_size=40))
def test_any_bytes_are_read_or_refused(raw: bytes) -> None:
    outcomes: list[tuple[str, object]] = []
    for reader in (lossless.read, _carefully, _slowly):
        try:
            outcomes.append(("read", lossless.canonical(reader(raw))))
        except ContractError as error:
            outcomes.append(("refused", error.code))
    assert outcomes[0] == outcomes[1] == outcomes[2]
