"""Records through headers and back, and a chain that every byte of an accepted record moves."""

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog.accept import accept
from surfacelog.entries import read_recent, recent_entry
from surfacelog.records import (
    EMPTY_FENCE,
    KeyClaim,
    Record,
    chain_next,
    chain_skip,
    chain_start,
    fence_text,
    read_record,
)
from surfacelog.snapshot import pieces, restore
from surfacelog.state import SessionState

TEXTS = st.text(alphabet=st.characters(exclude_categories=["Cs"]), max_size=8)


@given(
    st.builds(
        Record,
        kind=st.sampled_from(["open", "commit", "claim", "release", "delete"]),
        id=TEXTS,
        value=st.binary(max_size=20),
        prev=st.one_of(st.just(b""), st.binary(min_size=32, max_size=32)),
        fence=st.one_of(st.just(EMPTY_FENCE), TEXTS),
        seq=st.integers(-1, 2**53),
        key=st.one_of(st.none(), st.builds(KeyClaim, key=TEXTS, request=TEXTS, since=st.integers(0, 2**53))),
        reply=TEXTS,
        v=st.integers(0, 9),
    )
)
def test_a_record_comes_back_from_its_headers(record: Record) -> None:
    assert read_record(record.headers(), record.value) == record


@given(st.lists(st.tuples(st.sampled_from("kind id v seq key fence reply prev x".split()), st.binary(max_size=9))))
def test_strange_headers_never_raise(headers: list[tuple[str, bytes]]) -> None:
    record = read_record(headers, b"x")
    assert record is None or isinstance(record, Record)


@pytest.mark.parametrize(
    "headers",
    [
        [],
        [("kind", b"commit"), ("id", b"x")],
        [("kind", b"\xff"), ("id", b"x"), ("v", b"1")],
        [("kind", b"commit"), ("id", b"x"), ("v", b"one")],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("key", b"[1]")],
        [("kind", None), ("id", b"x"), ("v", b"1")],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("key", b"[" * 5000)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("key", b'["k","r",-1]')],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("key", b'["k","r",%d]' % 2**70)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("key", b'["%b","r",0]' % (b"k" * 200))],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("seq", b"1" + b"0" * 30)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("seq", b"9007199254740993")],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("seq", b"-1")],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("seq", b" 1_0")],
        [("kind", b"commit"), ("id", b"x" * 200), ("v", b"1")],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("fence", b"x" * 2000)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("fence", None)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("reply", b"x" * 2000)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1"), ("prev", b"x" * 2000)],
        [("kind", b"commit"), ("id", b"x"), ("v", b"1" + b"0" * 30)],
    ],
)
def test_headers_that_cannot_be_read_give_nothing(headers: Any) -> None:
    assert read_record(headers, b"") is None


def test_a_record_of_a_later_version_is_known_by_that_alone() -> None:
    record = read_record([("other", b"\xff"), ("v", b"7")], b"x")
    assert record is not None
    assert record.v == 7


VALUES = [b"", b"junk", b'{"type":"x","seq":0,"time":0,"data":1,"ignorable":true}', b'{"id":"s","createdAt":1}']
CLAIMS = [b'{"epoch":%d,"owner":"a","claim":"c"}' % epoch for epoch in (1, 2, 2**53, 2**70)]
INTEGERS = st.one_of(st.integers(-2, 2**80).map(lambda n: b"%d" % n), st.binary(max_size=4))


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["open", "commit", "claim", "release", "delete", "x", ""]),
            st.sampled_from(VALUES + CLAIMS),
            st.dictionaries(
                st.sampled_from(["id", "seq", "fence", "reply", "prev"]),
                st.one_of(INTEGERS, st.binary(max_size=200)),
            ),
        ),
        max_size=6,
    )
)
def test_whatever_lies_in_the_log_its_verdict_can_be_kept(
    found: list[tuple[str, bytes, dict[str, bytes]]],
) -> None:
    state = SessionState()
    accept(state, Record("open", "o", b'{"id":"s","createdAt":1}'), 0)
    for offset, (kind, value, headers) in enumerate(found, 1):
        rooted = {"id": b"%d" % offset, "v": b"1", "kind": kind.encode(), "prev": state.root, **headers}
        accept(state, read_record(list(rooted.items()), value), offset)
    for ordinal, verdict in enumerate(state.recent.values()):
        assert read_recent(*recent_entry(ordinal, verdict)) == (ordinal, verdict)
    assert pieces(restore(pieces(state))) == pieces(state)


def test_a_missing_value_is_an_empty_one() -> None:
    record = read_record([("kind", b"commit"), ("id", b"x"), ("v", b"1")], None)
    assert record is not None
    assert record.value == b""


def test_a_fence_names_epoch_owner_and_claim() -> None:
    assert fence_text(0) == EMPTY_FENCE == "0:"
    assert fence_text(3, "me", "c") == "3:me:c"


def test_every_part_of_a_record_moves_the_chain() -> None:
    chain = chain_start("open", b"{}")
    base = Record("commit", "id", b"value", fence="0:", key=KeyClaim("k", "r", 1))
    changed = [
        msgspec.structs.replace(base, kind="claim"),
        msgspec.structs.replace(base, id="ie"),
        msgspec.structs.replace(base, value=b"valuf"),
        msgspec.structs.replace(base, fence="1:"),
        msgspec.structs.replace(base, key=None),
        msgspec.structs.replace(base, key=KeyClaim("k", "r", 2)),
        # A byte that moves from one part to the next is another record.
        msgspec.structs.replace(base, id="idv", value=b"alue"),
    ]
    chains = {chain_next(chain, record) for record in [base, *changed]}
    assert len(chains) == len(changed) + 1
    assert len(chain) == len(chain_next(chain, base)) == 32
    assert chain_next(chain_start("open", b"{} "), base) != chain_next(chain, base)
    assert chain_start("ope", b"n{}") != chain


def test_what_only_one_attempt_needs_does_not_move_the_chain() -> None:
    chain = chain_start("open", b"{}")
    base = Record("commit", "id", b"value")
    for other in (msgspec.structs.replace(base, reply="me"), msgspec.structs.replace(base, seq=4, prev=b"x")):
        assert chain_next(chain, other) == chain_next(chain, base)


def test_an_overflow_gives_a_chain_of_its_own_at_every_offset() -> None:
    chain = chain_start("open", b"{}")
    assert len({chain, chain_skip(chain, 1), chain_skip(chain, 2), chain_skip(chain_skip(chain, 1), 2)}) == 4


def test_the_chain_is_pinned() -> None:
    # Logs that exist must verify for ever: a change of these values is a change of the record version.
    start = chain_start("0190", b'{"id":"s"}')
    assert start.hex() == "6c148a6bee409446c218b48602ed8c86b9336f91c8b2442440ce8a1a1dac51dc"
    record = Record("commit", "0191", b'{"type":"a"}', fence="1:me:c", key=KeyClaim("k", "r", 0))
    assert chain_next(start, record).hex() == "647920ce0ec06fd56804cc6c57f6463fda6e58c98e8de34aa0abe36f338f34ed"
    assert chain_skip(start, 7).hex() == "007894952fecc2f033f0867aa553300aa60874f47a85be8d11bba59bbb68fa0e"
