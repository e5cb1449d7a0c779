"""Runners of the cases about limits: records of every size, and session ids of every spelling."""

import hashlib
from typing import Any

import msgspec

from producer.log import check_size
from surfacelog.errors import LedgerError
from surfacelog.keys import PartitionKeys, partition_of, record_key, tag_of
from surfacelog.session import draft
from tests.faults.race_room import TENANT, Node, RaceRoom

__all__ = ["run_ids", "run_sizes"]

Event = dict[str, Any]
# Key, headers and what they count; more would mean that something else is measured too.
OVERHEAD_BYTES_MAX = 2048


async def run_sizes(case: Event, room: RaceRoom) -> None:
    """Each size in each unit: stored and read back equal, or refused as `too-large` with its seq still free."""
    wanted = case["generate"]
    node = await room.new_node()
    await node.create("s")
    digests: list[str] = []
    refused: list[tuple[int, dict[str, int]]] = []
    for size_bytes in wanted["encodedBytes"]:
        for unit in wanted["units"]:
            await _small(node, digests)
            data = _data(wanted["event"], unit, size_bytes)
            offered = draft(wanted["event"]["type"], data, surface_op=wanted["event"]["surfaceOp"])
            try:
                done = await node.producer.append(TENANT, "s", [offered])
            except LedgerError as refusal:
                if refusal.code != "too-large":
                    raise
                refused.append((size_bytes, refusal.detail))
            else:
                assert done.seq == len(digests)
                digests.append(_digest(data))
    await _small(node, digests)
    assert refused
    for size_bytes, told in refused:
        assert told["size_bytes_max"] == room.log.size_bytes_max < told["size_bytes"]
        # The case's sizes are those of data; envelope, key and headers come on top, and nothing else.
        assert 0 < told["size_bytes"] - size_bytes < OVERHEAD_BYTES_MAX
    await _reloaded(room, digests)


async def _small(node: Node, digests: list[str]) -> None:
    data = b'{"note":%d}' % len(digests)
    done = await node.producer.append(TENANT, "s", [draft("x/small", data, ignorable=True)])
    assert done.seq == len(digests), "a refused append used a seq up"
    digests.append(_digest(data))


def _data(event: Event, unit: str, size_bytes: int) -> bytes:
    """The event's data with as many units in its text as an encoded event of the size takes. Measured as it is
    written: three bytes for one character, two for one that is escaped."""
    shape = msgspec.json.encode(event["data"]).partition(b"<text>")
    encoded = msgspec.json.encode(unit)[1:-1]
    room_bytes = size_bytes - len(shape[0]) - len(shape[2])
    return shape[0] + encoded * (room_bytes // len(encoded)) + shape[2]


def _digest(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


class _Stored(msgspec.Struct):
    seq: int
    data: msgspec.Raw


class _Page(msgspec.Struct):
    events: list[_Stored]
    next: int | None


async def _reloaded(room: RaceRoom, digests: list[str]) -> None:
    """From a machine that has just started: dense, and every body is the one that was sent."""
    reader = await room.new_node()
    found: list[_Stored] = []
    at: int | None = 0
    while at is not None:
        answer = await reader.services.pages.events(
            TENANT, "s", at, 2**53, 1000, min_seq=len(digests), wait_ms=20_000
        )
        page = msgspec.json.decode(answer.body, type=_Page)
        found += page.events
        at = page.next
    assert [event.seq for event in found] == list(range(len(digests)))
    assert [_digest(bytes(event.data)) for event in found] == digests
    for record in await room.records("s"):
        assert record.key is not None
        check_size(record.key, record.headers, record.value or b"", room.log.size_bytes_max)


async def run_ids(case: Event, room: RaceRoom) -> None:
    """Every id is a session of its own, for the gateway's tenant over HTTP and for another tenant beside it."""
    ids: list[str] = case["sessionIds"]
    node = await room.new_node()
    for number, name in enumerate(ids):
        await node.create(name)
        done = await node.append(name, _said(f"http {number}"))
        assert (done.status_code, done.json().get("seq")) == (201, 0), done.text
        await node.producer.create("other", room.header(name))
        body = draft("user/message", _said(f"other {number}")["data"], surface_op="append")
        assert (await node.producer.append("other", name, [body])).seq == 0
    reader = await room.new_node()
    for number, name in enumerate(ids):
        shown = await reader.get(name, "messages", min_seq=1)
        assert [message["content"][0]["text"] for message in shown["messages"]] == [f"http {number}"]
        assert (await reader.get(name, "", min_seq=1))["id"] == name
        events = (await reader.get(name, "events"))["events"]
        assert [event["data"]["content"][0]["text"] for event in events] == [f"http {number}"]
        told = await reader.services.reads.messages("other", name, min_seq=1, wait_ms=20_000)
        assert b'"other %d"' % number in told.body
        assert told.seq == 1
    await _apart(room, ids)


def _said(text: str) -> Event:
    data = {"id": text, "role": "user", "content": [{"type": "text", "text": text}], "source": {"kind": "user"}}
    return {"type": "user/message", "data": data, "surfaceOp": "append"}


async def _apart(room: RaceRoom, ids: list[str]) -> None:
    """In log and cache: a key of its own for each, in the partition and hash tag that its bytes give."""
    partitions = room.log.partitions
    names = [record_key(tenant, name) for tenant in (TENANT, "other") for name in ids]
    assert len(set(names)) == len(names)
    found = set()
    for partition, end in (await room.log.ends(range(partitions), 10_000)).items():
        at = 0
        while at < end:
            for record in await room.log.read(partition, at, 500, 10_000):
                at = record.offset + 1
                assert record.key is not None
                assert partition_of(record.key, partitions) == partition
                found.add(record.key)
    assert found == set(names)
    metas = set()
    for name in names:
        tag = tag_of(partition_of(name, partitions), partitions, room.log.topic)
        own = PartitionKeys(tag, 1).session(name)
        # What Redis hashes lies between the first brace and the next: braces of an id must not come before it.
        assert own.meta.partition(b"{")[2].partition(b"}")[0] == tag
        assert await room.cache.call("EXISTS", own.meta) == 1
        metas |= {own.meta, own.surface, own.tail, own.lock, own.transcript}
    assert len(metas) == 5 * len(names)
