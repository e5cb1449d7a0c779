"""Entries of windows and nodes read back as they were, whatever their names are."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog.entries import (
    PLACE_BYTES,
    entry_field,
    key_entry,
    place_entry,
    read_key,
    read_places,
    read_recent,
    recent_entry,
    rows_of,
)
from surfacelog.node import Node
from surfacelog.state import UsedKey
from surfacelog.verdict import Verdict

UUID = "01890a5d-ac96-774b-bcce-b302099a8057"
names = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"]), max_size=40),
    st.uuids().map(str),
    st.uuids().map(lambda name: name.hex),
    st.uuids().map(lambda name: str(name).upper()),
    st.sampled_from([UUID, UUID.upper(), UUID.replace("-", ""), " " + UUID[1:], UUID[:-1] + " ", "0" * 31 + " "]),
)
counts = st.integers(0, 2**53)
verdicts = st.builds(
    Verdict,
    st.sampled_from(["accepted", "rejected", "duplicate"]),
    names,
    names,
    st.integers(-1, 2**53),
    counts,
    counts,
    counts,
    st.binary(max_size=40),
    names,
    names,
    st.integers(0, 2**53),
)
nodes = st.builds(
    Node,
    counts,
    names,
    names,
    st.integers(0, 9),
    st.booleans(),
    st.lists(counts, max_size=2).map(tuple),
    st.lists(names, max_size=2).map(tuple),
    names,
    st.integers(-1, 2**53),
)


@given(verdicts, counts)
def test_a_verdict_reads_back_as_it_was(verdict: Verdict, ordinal: int) -> None:
    assert read_recent(*recent_entry(ordinal, verdict)) == (ordinal, verdict)


@given(names, st.builds(UsedKey, names, counts, counts, counts, names, counts))
def test_a_used_key_reads_back_as_it_was(key: str, used: UsedKey) -> None:
    assert read_key(*key_entry(key, used)) == (key, used)


@given(st.sets(names, max_size=30))
def test_no_two_names_share_a_field(found: set[str]) -> None:
    assert len({entry_field(name) for name in found}) == len(found)


@given(st.lists(nodes, max_size=5))
def test_rows_read_back_as_the_nodes_they_were(found: list[Node]) -> None:
    assert list(msgspec.json.Decoder(Node).decode_lines(rows_of(found))) == found


def test_the_usual_entry_fits_the_small_form_of_a_redis_hash() -> None:
    verdict = Verdict("accepted", UUID, "", 9_000_000, 1, 2**31, 9_000_001, bytes(32))
    assert max(map(len, recent_entry(2**31, verdict))) <= 64
    used = UsedKey("ab" * 16, 9_000_000, 1, 2**31, UUID, 2**31)
    assert max(map(len, key_entry("cd" * 16, used))) <= 64


def test_an_entry_of_no_kind_is_refused() -> None:
    with pytest.raises(ValueError, match="name"):
        read_key(b"\x07abc", key_entry("k", UsedKey("r", 0, 1, 2, UUID, 3))[1])


@given(st.lists(st.tuples(st.integers(0, 2**53), st.integers(0, 2**53)), min_size=1))
def test_places_read_back_whole_and_a_torn_one_is_left_out(places: list[tuple[int, int]]) -> None:
    entries = b"".join(place_entry(seq, offset) for seq, offset in places)
    assert read_places(entries) == places
    assert len(entries) == PLACE_BYTES * len(places)
    assert read_places(entries[:-1]) == places[:-1]
