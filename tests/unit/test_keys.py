"""Names outside: no two ids share a key, and partitions are those that Kafka's own clients choose."""

import re
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surfacelog.errors import ProtocolError
from surfacelog.keys import (
    ID_BYTES_MAX,
    PartitionKeys,
    encode_id,
    messages_pointer,
    murmur2,
    nonce_of,
    partition_of,
    record_key,
    session_of,
    slot_of,
    tag_of,
)

# Ids that lossy encodings have mixed up.
IDS = [
    "a:b",
    "a_b",
    "a/b",
    "a%2Fb",
    "A:B",
    "a",
    "a:",
    "a ",
    "..",
    ".",
    "\u00e9",
    "e\u0301",
    "{a}b",
    "{a}c",
    "a\u0000b",
    "x" * 255,
    "x" * 256,
]
VALID = st.text(alphabet=st.characters(exclude_categories=["Cs"]), min_size=1, max_size=20)


def test_ids_that_look_alike_have_keys_of_their_own() -> None:
    keys = {record_key("t", name) for name in IDS}
    assert len(keys) == len(IDS)
    redis = PartitionKeys(tag_of(0, 64, "surfacelog"), 1)
    names = {getattr(redis.session(key), field) for key in keys for field in redis.session(key).__slots__}
    assert len(names) == len(IDS) * len(redis.session(next(iter(keys))).__slots__)


@pytest.mark.parametrize("name", IDS)
def test_a_key_holds_only_characters_that_mean_nothing_elsewhere(name: str) -> None:
    key = record_key(name, name)
    assert re.fullmatch(rb"[A-Za-z0-9._~%-]+/[A-Za-z0-9._~%-]+", key)
    assert session_of(key) == (name, name)


@given(VALID, VALID, VALID, VALID)
def test_keys_are_injective(tenant: str, session: str, other_tenant: str, other_session: str) -> None:
    assert session_of(record_key(tenant, session)) == (tenant, session)
    same = (tenant, session) == (other_tenant, other_session)
    assert (record_key(tenant, session) == record_key(other_tenant, other_session)) is same


@given(st.binary(max_size=20))
def test_a_key_that_is_not_ours_is_refused(key: bytes) -> None:
    try:
        tenant, session = session_of(key)
    except ProtocolError:
        return
    assert record_key(tenant, session) == key


@pytest.mark.parametrize(
    "key", [b"", b"/", b"a", b"a/", b"/a", b"a/b/c", b"a/%2f", b"a/%61", b"a/%", b"a/b\n", b"a/%FF"]
)
def test_keys_written_in_another_way_are_refused(key: bytes) -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        session_of(key)


@pytest.mark.parametrize("name", ["", "\ud800", "x" * (ID_BYTES_MAX + 1), "é" * ID_BYTES_MAX])
def test_ids_beyond_the_limits_are_refused(name: str) -> None:
    with pytest.raises(ProtocolError, match="malformed"):
        encode_id(name)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_murmur2_is_kafkas(text: bytes, expected: int) -> None:
    assert murmur2(text) == expected & 0xFFFFFFFF
    assert partition_of(text, 64) == (expected & 0x7FFFFFFF) % 64


@pytest.mark.parametrize(("tag", "slot"), [(b"123456789", 0x31C3), (b"foo", 12182), (b"user1000", 3443), (b"", 0)])
def test_slots_are_those_of_a_cluster(tag: bytes, slot: int) -> None:
    assert slot_of(tag) == slot


@pytest.mark.parametrize("partitions", [1, 3, 64, 200])
def test_tags_spread_evenly_over_the_slots(partitions: int) -> None:
    tags = [tag_of(partition, partitions, "topic") for partition in range(partitions)]
    assert len(set(tags)) == partitions
    for partition, tag in enumerate(tags):
        # A share begins at a whole slot, so it may begin a fraction of one early.
        assert -partitions / 16384 <= slot_of(tag) * partitions / 16384 - partition < 1
        assert not set(tag) & set(b"{}: ")
    thirds = [sum(1 for tag in tags if slot_of(tag) // 5462 == third) for third in range(3)]
    assert max(thirds) - min(thirds) <= 1 or partitions < 3


def test_all_keys_of_a_partition_share_one_tag() -> None:
    tag = tag_of(5, 64, "to{p}ic")
    keys = PartitionKeys(tag, 3)
    session = keys.session(record_key("t", "{x}"))
    names = [keys.serving, keys.checkpoint, keys.directory, keys.news, keys.verdicts(b"{me}")]
    names += [getattr(session, field) for field in session.__slots__]
    for name in names:
        assert re.match(rb"[^{}]*\{([^}]+)\}", name)[1] == tag  # type: ignore[index]
    assert len(set(names)) == len(names)


def test_two_versions_share_nothing_but_what_stands_outside_of_them() -> None:
    tag = tag_of(0, 1, "t")
    one, two = PartitionKeys(tag, 1), PartitionKeys(tag, 2)
    key = record_key("t", "s")
    for field, (a, b) in product(one.session(key).__slots__, [(one, two)]):
        same = getattr(a.session(key), field) == getattr(b.session(key), field)
        assert same is (field == "lock")
    assert one.serving == two.serving
    assert one.checkpoint != two.checkpoint
    assert one.directory != two.directory


def test_a_pointer_names_a_list_of_messages_and_gives_its_nonce_back() -> None:
    own = PartitionKeys(b"t", 1).session(b"a/b")
    pointer = messages_pointer(7, "n1")
    assert own.messages_at(pointer) == own.messages + b"7:n1"
    assert nonce_of(pointer.decode()) == "n1"
