import base64

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog.errors import ProtocolError
from surfacelog.token import Token, read_token

counts = st.integers(0, 2**53)


@given(st.text(max_size=40), counts, st.integers(-1, 2**53), st.integers(-1, 2**53), st.text(max_size=20), counts)
def test_a_token_reads_back_as_it_was_written(open_id, version, seq, generation, nonce, count):
    token = Token(open_id, version, seq, generation, nonce, count)
    assert read_token(token.encode()) == token


@given(st.text(max_size=200))
def test_garbage_is_refused_as_malformed_and_nothing_else(text):
    with pytest.raises(ProtocolError) as refusal:
        read_token(text)
    assert refusal.value.code == "malformed"


@pytest.mark.parametrize(
    "body", [b'["o",1,-2]', b'["o",-1,0]', b'["o",1,0,0,"",-1]', b'["o",1,0,0,"",0,0,9]', b'["o",1]', b"[" * 900]
)
def test_a_token_with_impossible_places_is_refused(body):
    with pytest.raises(ProtocolError):
        read_token(base64.urlsafe_b64encode(body).rstrip(b"=").decode())


def test_a_token_has_one_spelling():
    text = Token("o", 1, 5, 0, "n", 3).encode()
    with pytest.raises(ProtocolError):
        read_token(text[:5] + "!" + text[5:])
    assert text.isascii()
    assert set(text) <= set("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_")
