"""Reads a projected session back and compares it with the truth, byte for byte."""

from producer.cache import Cache
from producer.log import EventLog
from producer.state_reader import StateView, read_state
from surfacelog.keys import PROJECTION_VERSION, PartitionKeys, partition_of, tag_of
from surfacelog.snapshot import pieces
from tests.logwriter import LogWriter

__all__ = ["assert_equals_truth", "partition_keys", "view_of"]


def partition_keys(log: EventLog, key: bytes) -> PartitionKeys:
    """The Redis keys of the session's partition."""
    return PartitionKeys(tag_of(partition_of(key, log.partitions), log.partitions, log.topic), PROJECTION_VERSION)


async def view_of(cache: Cache, log: EventLog, key: bytes) -> StateView:
    """What a producer would read of the session."""
    return await read_state(cache, partition_keys(log, key), key)


async def assert_equals_truth(cache: Cache, writer: LogWriter, key: bytes) -> None:
    """Messages, transcript, surface, offsets, windows and head of the session are those of the reference."""
    truth = writer.truths[key]
    view = await view_of(cache, writer.log, key)
    state = view.state
    assert view.whole
    assert state is not None
    own = partition_keys(writer.log, key).session(key)
    assert state.surface.nodes == truth.session.surface.nodes
    assert list(state.surface.entries) == list(truth.session.surface.entries)
    assert state.surface.content_generation == truth.session.surface.content_generation
    assert state.chain == truth.state.chain
    assert state.next_seq == truth.session.next_seq
    assert await cache.call("LRANGE", own.messages + view.meta[b"mk"], 0, -1) == truth.messages
    seqs = [int(seq) for seq in await cache.call("LRANGE", own.transcript, 0, -1)]
    assert seqs == list(truth.session.transcript)
    tail = await cache.call("LRANGE", own.tail, 0, -1)
    assert tail == list(truth.session.lines[len(truth.session.lines) - len(tail) :])
    assert pieces(state) == pieces(truth.state)
