"""Reads over planted keys: one round trip, no decoding, and what is told when versions or pieces are missing."""

import asyncio
import json
from collections.abc import AsyncIterator

import pytest

from gateway.news import News
from gateway.pages import Pages
from gateway.reads import Reads, known_token
from gateway.scripts import MESSAGES
from gateway.view import Viewer
from producer.cache import Argument
from producer.freshness import LogEnds
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from surfacelog.errors import ProtocolError
from surfacelog.keys import PartitionKeys, partition_of, record_key, tag_of
from surfacelog.records import Record
from surfacelog.token import Token

KEY = record_key("t", "s")
OPEN = "0199-open"


class Shelf:
    """A session planted in a memory cache, and reads over it."""

    def __init__(self) -> None:
        self.topic = MemoryTopic(2)
        self.log = MemoryLog(self.topic)
        self.trips: list[str] = []
        self.cache = MemoryCache(before=self._trip)
        self.partition = partition_of(KEY, 2)
        self.news = News(self.cache, lambda partition: self.keys(1).news)
        self.viewer = Viewer(self.cache, self.log.topic, 2, LogEnds(self.log, 1000), self.news)
        self.reads = Reads(self.viewer)
        self.pages = Pages(self.viewer, self.log, 1 << 20)

    async def _trip(self, name: str) -> None:
        self.trips.append(name)

    def keys(self, version: int) -> PartitionKeys:
        return PartitionKeys(tag_of(self.partition, 2, self.log.topic), version)

    def plant(self, bodies: list[bytes], *, version: int = 1, **changed: bytes) -> None:
        keys, call = self.keys(version), self.cache.data.call
        own = keys.session(KEY)
        call("SET", keys.serving, b"%d" % version)
        call("HSET", keys.checkpoint, b"next", b"100", b"target", b"0", b"halted", b"")
        meta = {
            "status": b"open",
            "open": OPEN.encode(),
            "next": b"%d" % len(bodies),
            "content": b"0",
            "mk": b"0:n",
        }
        meta |= {"messages": b"%d" % len(bodies)} | changed
        for name, value in meta.items():
            call("HSET", own.meta, name.encode(), value)
        call("DEL", own.messages + b"0:n")
        if bodies:
            call("RPUSH", own.messages + b"0:n", *bodies)


@pytest.fixture
async def shelf() -> AsyncIterator[Shelf]:
    made = Shelf()
    yield made
    await made.news.close()


async def test_messages_are_one_round_trip_and_bodies_are_never_looked_into(shelf: Shelf) -> None:
    shelf.plant([b"{not json", b"\xff\x00"])
    answer = await shelf.reads.messages("t", "s")
    assert answer.body.endswith(b'"messages":[{not json,\xff\x00]}')
    assert shelf.trips == ["read-messages"]


async def test_an_answer_is_whole_json_that_states_its_place(shelf: Shelf) -> None:
    shelf.plant([b'{"a":1}', b'{"b":2}'])
    answer = await shelf.reads.messages("t", "s")
    told = json.loads(answer.body)
    assert told == {
        "seq": 2,
        "generation": 0,
        "token": answer.token,
        "rebuilt": False,
        "messages": [{"a": 1}, {"b": 2}],
    }


async def test_a_version_that_took_over_is_followed_and_remembered(shelf: Shelf) -> None:
    shelf.plant([b"1"])
    await shelf.reads.messages("t", "s")
    shelf.plant([b"1", b"2"], version=2)
    shelf.trips.clear()
    assert (await shelf.reads.messages("t", "s")).seq == 2
    assert len(shelf.trips) == 2
    assert (await shelf.reads.messages("t", "s")).seq == 2
    assert len(shelf.trips) == 3


async def test_without_a_serving_version_or_checkpoint_the_state_is_rebuilding(shelf: Shelf) -> None:
    for missing in ("serving", "checkpoint"):
        shelf.plant([b"1"])
        shelf.cache.data.call("DEL", getattr(shelf.keys(1), missing))
        with pytest.raises(ProtocolError) as refusal:
            await shelf.reads.messages("t", "s", wait_ms=0)
        assert refusal.value.code == "rebuilding"


async def test_a_partition_below_its_target_is_rebuilding(shelf: Shelf) -> None:
    shelf.plant([b"1"])
    shelf.cache.data.call("HSET", shelf.keys(1).checkpoint, b"target", b"101")
    with pytest.raises(ProtocolError) as refusal:
        await shelf.reads.messages("t", "s", wait_ms=0)
    assert refusal.value.code == "rebuilding"
    shelf.cache.data.call("HSET", shelf.keys(1).checkpoint, b"next", b"101")
    assert (await shelf.reads.messages("t", "s", wait_ms=0)).seq == 1


async def test_a_list_that_is_shorter_than_the_state_says_is_never_shown(shelf: Shelf) -> None:
    shelf.plant([b"1", b"2"], messages=b"3")
    with pytest.raises(ProtocolError) as refusal:
        await shelf.reads.messages("t", "s", wait_ms=0)
    assert refusal.value.code == "rebuilding"


async def test_a_token_that_counts_more_than_there_is_brings_no_half_answer(shelf: Shelf) -> None:
    shelf.plant([b"1", b"2"])
    forged = Token(OPEN, 1, 1, 0, "n", 9).encode()
    with pytest.raises(ProtocolError):
        await shelf.reads.messages("t", "s", after=forged, wait_ms=0)


async def test_a_session_that_only_the_directory_knows_is_lost_and_not_unknown(shelf: Shelf) -> None:
    shelf.plant([b"1"])
    shelf.cache.data.call("DEL", shelf.keys(1).session(KEY).meta)
    with pytest.raises(ProtocolError) as refusal:
        await shelf.reads.messages("t", "s", wait_ms=0)
    assert refusal.value.code == "no-session"
    shelf.cache.data.call("HSET", shelf.keys(1).directory, KEY, b'[0,"open",4]')
    with pytest.raises(ProtocolError) as refusal:
        await shelf.reads.messages("t", "s", wait_ms=0)
    assert refusal.value.code == "rebuilding"
    shelf.cache.data.call("HSET", shelf.keys(1).directory, KEY, b'[0,"deleted",4]')
    with pytest.raises(ProtocolError) as refusal:
        await shelf.reads.messages("t", "s", wait_ms=0)
    assert refusal.value.code == "gone"


async def test_an_unknown_session_is_called_so_only_once_the_checkpoint_passed_the_log_end(shelf: Shelf) -> None:
    shelf.plant([])
    shelf.cache.data.call("DEL", shelf.keys(1).session(KEY).meta)
    shelf.cache.data.call("HSET", shelf.keys(1).checkpoint, b"next", b"0")
    await shelf.log.produce(shelf.partition, b"t/other", [], b"", 1000)
    asked = asyncio.create_task(shelf.reads.messages("t", "s", wait_ms=0))
    await asyncio.sleep(0.05)
    assert not asked.done()
    shelf.cache.data.call("HSET", shelf.keys(1).checkpoint, b"next", b"1")
    with pytest.raises(ProtocolError) as refusal:
        await asked
    assert refusal.value.code == "no-session"


async def test_a_waiter_is_woken_by_news_long_before_it_would_look_by_itself(
    shelf: Shelf, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.view.POLL_S", 30.0)
    shelf.plant([b"1"])
    asked = asyncio.create_task(shelf.reads.messages("t", "s", min_seq=2, wait_ms=20_000))
    await asyncio.sleep(0.05)
    shelf.plant([b"1", b"2"])
    other = b'[["t/other",9,0]]'
    shelf.cache.data.call("SPUBLISH", shelf.keys(1).news, other)
    await asyncio.sleep(0.05)
    assert not asked.done()
    shelf.cache.data.call("SPUBLISH", shelf.keys(1).news, b'[["t/s",2,0]]')
    async with asyncio.timeout(2):
        assert (await asked).seq == 2


async def test_old_events_are_read_where_they_stand_and_nothing_else_is(shelf: Shelf) -> None:
    places = []
    for number in range(40):
        line = b'{"seq":%d}' % number
        record = Record("commit", f"id{number}", line, seq=number)
        offset = await shelf.log.produce(shelf.partition, KEY, record.headers(), record.value, 1000)
        places.append((number, offset))
        for _ in range(300 if number % 10 == 9 else 1):
            await shelf.log.produce(shelf.partition, b"t/other", [], b"x" * 50, 1000)
    shelf.plant([b"1"] * 40)
    entries = b"".join(seq.to_bytes(8, "big") + offset.to_bytes(8, "big") for seq, offset in places)
    shelf.cache.data.call("SET", shelf.keys(1).session(KEY).offsets, entries)
    read: list[tuple[int, int]] = []
    plain = shelf.log.read

    async def counted(partition: int, offset: int, records_max: int, timeout_ms: int) -> list[object]:
        read.append((offset, records_max))
        return list(await plain(partition, offset, records_max, timeout_ms))

    shelf.log.read = counted  # type: ignore[method-assign,assignment]
    _, lines = await shelf.pages.lines("t", "s", 5, 25, 100)
    assert lines == [b'{"seq":%d}' % number for number in range(5, 25)]
    # Three stretches, none of which reads through the 300 strangers between them.
    assert len(read) <= 6
    assert sum(count for _, count in read) < 60


async def test_a_page_that_the_log_no_longer_holds_is_told_as_truncated(shelf: Shelf) -> None:
    shelf.plant([b"1"] * 3)
    await shelf.log.produce(shelf.partition, b"t/other", [], b"", 1000)
    entry = (0).to_bytes(8, "big") + (0).to_bytes(8, "big")
    shelf.cache.data.call("SET", shelf.keys(1).session(KEY).offsets, entry)
    with pytest.raises(ProtocolError) as refusal:
        await shelf.pages.lines("t", "s", 0, 3, 10)
    assert refusal.value.code == "log-truncated"


def test_an_etag_is_found_among_others_and_strange_ones_match_nothing() -> None:
    token = Token(OPEN, 1, 4, 0, "n", 5)
    assert known_token(f'"x", W/"{token.encode()}"') == token
    for header in (None, "", "*", '"x"', ",,,", '"' + "A" * 9000 + '"'):
        assert known_token(header) is None


async def test_a_script_that_finds_another_version_says_only_that(shelf: Shelf) -> None:
    shelf.plant([b"1"])
    keys = shelf.keys(1)
    names = [keys.serving, keys.checkpoint, keys.directory, keys.session(KEY).meta, keys.session(KEY).messages]
    args: list[Argument] = [7, KEY, b"", b"-1", b"-1", b"", b"-1", b"-1"]
    assert await shelf.cache.run(MESSAGES, names, args) == [b"1"]
