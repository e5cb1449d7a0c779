"""Session ids in paths: exact, injective, never normalised."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.paths import NOWHERE, routed_path, session_id, session_path
from surfacelog.errors import ProtocolError

ids = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=40)


def id_in(raw: bytes) -> str:
    return session_id(routed_path(raw).split("/")[3])


@given(ids)
def test_an_id_comes_out_of_its_path_as_it_went_in(name: str) -> None:
    assert id_in(session_path(name, "messages").encode()) == name


@pytest.mark.parametrize("name", ["a/b", "a%2Fb", "..", ".", "...", "a\x00b", "é", "e\u0301", "{a}b", "+", "a b"])
def test_awkward_ids_survive(name: str) -> None:
    assert id_in(session_path(name).encode()) == name


def test_a_literal_dot_dot_is_an_id_and_not_a_directory() -> None:
    assert id_in(b"/v1/sessions/../messages") == ".."


@pytest.mark.parametrize(
    "raw", [b"/v1/sessions//messages", b"//v1/sessions/a", b"/v1/sessions/a/", b"/v1//sessions", b"/v1/sessions/"]
)
def test_a_path_with_an_empty_part_leads_nowhere(raw: bytes) -> None:
    assert routed_path(raw) == NOWHERE


@pytest.mark.parametrize("part", [b"%", b"%zz", b"%f", b"%FF", b"%C3%28", b"%ED%A0%80"])
def test_what_is_not_percent_encoded_unicode_is_refused(part: bytes) -> None:
    with pytest.raises(ProtocolError) as refusal:
        id_in(b"/v1/sessions/" + part)
    assert refusal.value.code == "malformed"


def test_an_encoded_route_is_no_route() -> None:
    assert routed_path(b"/v1/sess%69ons/61") == "/v1/sess%69ons/61"
