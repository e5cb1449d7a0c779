"""What the projection costs beside a bare consumer of its topic: the figures of `surfacelog bench rebuild`."""

import asyncio
import statistics
import time
from collections.abc import Awaitable, Iterator
from contextlib import ExitStack
from pathlib import Path
from random import Random
from typing import Any

import msgspec
from confluent_kafka import Consumer, Producer, TopicPartition
from msgspec import Raw

from gateway.cli.bench_servers import bench_servers, projector
from producer.cache import Cache
from producer.checkpoint import Checkpoint, read_checkpoint
from producer.connect import open_cache, open_log
from producer.ids import mint_id
from producer.log import EventLog
from producer.memory_log import MemoryLog, MemoryTopic
from producer.settings import ServerSettings
from producer.state_reader import session_keys
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from surfacelog.accept import preview
from surfacelog.events import Draft, encode_line
from surfacelog.header import Header
from surfacelog.keys import partition_of, record_key
from surfacelog.records import Record
from surfacelog.state import SessionState

__all__ = ["rebuild_figures"]

TENANT = "bench"
BODY_BYTES = 400
REPLACED_NODES = 20
LAG_S = 10
Figures = dict[str, Any]


class Story:
    """Sessions that grow by user messages and are compacted now and then; hands out their records."""

    def __init__(
        self, sessions: int, replaces: float, per_commit: int, reply: str = "", body_bytes: int = BODY_BYTES
    ) -> None:
        self._body_bytes = body_bytes
        self._keys = [record_key(TENANT, f"s{number}") for number in range(sessions)]
        self._states = [SessionState() for _ in range(sessions)]
        self._replaces = replaces
        self._per_commit = per_commit
        self._reply = reply
        self._random = Random(1)  # noqa: S311 - the same story every time

    def opens(self) -> Iterator[tuple[bytes, Record]]:
        """The first record of each session."""
        for key, state in zip(self._keys, self._states, strict=True):
            record = Record("open", mint_id(), Header(key.decode().partition("/")[2], 1).encode())
            preview(state, record)
            yield key, record

    def commits(self, events: int) -> Iterator[tuple[bytes, Record]]:
        """Commits of so many events together."""
        for number in range(0, events, self._per_commit):
            place = self._random.randrange(len(self._keys))
            nodes = self._states[place].surface.nodes
            compacts = len(nodes) > REPLACED_NODES and self._random.random() < self._replaces * self._per_commit
            drafts = [_draft(number, self._body_bytes, nodes[:REPLACED_NODES])] if compacts else []
            while len(drafts) < self._per_commit:
                drafts.append(_draft(number + len(drafts), self._body_bytes))
            yield self._record(place, drafts)

    def compaction(self) -> tuple[bytes, Record]:
        """A commit that replaces the first nodes of the first session."""
        nodes = self._states[0].surface.nodes
        return self._record(0, [_draft(0, self._body_bytes, nodes[:REPLACED_NODES])])

    def _record(self, place: int, drafts: list[Draft]) -> tuple[bytes, Record]:
        state = self._states[place]
        lines = [encode_line(draft, state.next_seq + index, 1) for index, draft in enumerate(drafts)]
        value = b"\n".join(lines)
        record = Record("commit", mint_id(), value, state.chain, state.fence, state.next_seq, reply=self._reply)
        verdict = preview(state, record)
        assert verdict.outcome == "accepted", verdict
        return self._keys[place], record


def _draft(number: int, body_bytes: int, replaced: list[int] | None = None) -> Draft:
    text = f"event {number} ".ljust(body_bytes - 100, ".")
    data = Raw(
        msgspec.json.encode({"id": f"m{number}", "role": "user", "content": [{"type": "text", "text": text}]})
    )
    if replaced is None:
        return Draft("user/message", data, surface_op=Raw(b'"append"'))
    op = {"op": "replace", "startSeq": replaced[0], "endSeq": replaced[-1]}
    sources = Raw(msgspec.json.encode(replaced))
    return Draft("user/message", data, surface_op=Raw(msgspec.json.encode(op)), source_event_seqs=sources)


def rebuild_figures(
    events: int = 1_000_000, sessions: int = 2000, per_commit: int = 1, partitions: int = 64, rate: int = 2000
) -> Figures:
    """Rates in events a second, times in ms, memory in bytes. `ratio`: ours to the bare consumer's."""
    with bench_servers(partitions) as servers:
        return asyncio.run(_measure(servers, events, sessions, per_commit, rate))


async def _measure(servers: ServerSettings, events: int, sessions: int, per_commit: int, rate: int) -> Figures:
    log, cache = await open_log(servers), await open_cache(servers)
    figures: Figures = {"events": events, "sessions": sessions, "per_commit": per_commit}
    try:
        story = Story(sessions, 0.02, per_commit, "bench")
        records = await asyncio.to_thread(_write, servers, story, events)
        bare = await asyncio.to_thread(_drain_rate, servers, records)
        figures["bare_consumer"] = bare * events / records
        for workers in (1, 2):
            await _forget(log, cache)
            found = await _rebuild(servers, log, cache, records, workers)
            found["rate"] *= events / records
            found["ratio"] = found["rate"] / figures["bare_consumer"]
            figures[f"workers_{workers}"] = found
        figures["lag_ms"] = await _lag(servers, cache, log, story, rate)
        figures["neighbours_ms"] = await _neighbours(cache)
        figures["memory"] = {str(count): await _memory(cache, count) for count in (20, 1000)}
    finally:
        await cache.close()
        await log.close()
    return figures


def _producer(servers: ServerSettings) -> Producer:
    return Producer(
        {
            "bootstrap.servers": servers.kafka,
            "enable.idempotence": True,
            "acks": "all",
            "linger.ms": 2,
            "queue.buffering.max.messages": 200_000,
        }
    )


def _write(servers: ServerSettings, story: Story, events: int) -> int:
    producer = _producer(servers)
    count = 0
    for source in (story.opens(), story.commits(events)):
        for key, record in source:
            _send(producer, servers, key, record)
            count += 1
    producer.flush()
    return count


def _send(producer: Producer, servers: ServerSettings, key: bytes, record: Record) -> None:
    partition = partition_of(key, servers.partition_count)
    headers: Any = record.headers()
    while True:
        try:
            producer.produce(servers.topic, record.value, key, partition, headers=headers)
            producer.poll(0)
            return
        except BufferError:
            producer.poll(0.05)


def _drain_rate(servers: ServerSettings, records: int) -> float:
    """Records a second of a plain consumer that looks at every key, header and value."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers.kafka,
            "group.id": "bare",
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest",
            "fetch.wait.max.ms": 5,
        }
    )
    consumer.assign([TopicPartition(servers.topic, number, 0) for number in range(servers.partition_count)])
    seen = 0
    while seen == 0:
        seen = len(consumer.consume(1, 1))
    started = time.perf_counter()
    while seen < records:
        for message in consumer.consume(2000, 0.1):
            if message.error() is None:
                message.key()
                message.headers()
                message.value()
                seen += 1
    rate = records / (time.perf_counter() - started)
    consumer.close()
    return rate


async def _forget(log: EventLog, cache: Cache) -> None:
    """Without its checkpoints a projection begins anew; what is left of it is overwritten."""
    for partition in range(log.partitions):
        await cache.call("DEL", make_site(log, cache, partition, ProjectorSettings()).keys.checkpoint)


async def _rebuild(servers: ServerSettings, log: EventLog, cache: Cache, records: int, workers: int) -> Figures:
    with ExitStack() as stack:
        pids = [stack.enter_context(projector(servers)) for _ in range(workers)]
        while (first := await _reached(log, cache)) == 0:
            await asyncio.sleep(0.01)
        started = time.perf_counter()
        while (reached := await _reached(log, cache)) < records:
            await asyncio.sleep(0.05)
        elapsed_s = time.perf_counter() - started
        return {"rate": (reached - first) / elapsed_s, "worker_bytes": max(map(_peak_bytes, pids))}


async def _reached(log: EventLog, cache: Cache) -> int:
    return sum(place.next for place in await _places(log, cache))


async def _places(log: EventLog, cache: Cache) -> list[Checkpoint]:
    sites = (make_site(log, cache, partition, ProjectorSettings()) for partition in range(log.partitions))
    found = await asyncio.gather(*(cache.call("HGETALL", site.keys.checkpoint) for site in sites))
    return [read_checkpoint(fields) or Checkpoint() for fields in found]


def _peak_bytes(pid: int) -> int:
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    return 0


async def _lag(servers: ServerSettings, cache: Cache, log: EventLog, story: Story, rate: int) -> Figures:
    """From handing a commit to the client library until its verdict is heard, at a steady rate. The second half
    counts: a broker that has just started is slow with small requests."""
    channels = [
        make_site(log, cache, number, ProjectorSettings()).keys.verdicts(b"bench")
        for number in range(log.partitions)
    ]
    sent: dict[str, float] = {}
    times: list[float] = []

    async def listen() -> None:
        async for _, payload in cache.listen(channels):
            now = time.perf_counter()
            ids = [told["id"] for told in msgspec.json.decode(payload)]
            # The verdicts of what was written before may still be coming.
            times.extend((now - sent[name]) * 1000 for name in ids if name in sent)

    with projector(servers):
        began_ms = time.time_ns() // 1_000_000
        while min(place.advanced_ms for place in await _places(log, cache)) <= began_ms:
            await asyncio.sleep(0.1)
        listening = asyncio.create_task(listen())
        await asyncio.sleep(0.5)
        producer = _producer(servers)
        commits = list(story.commits(rate * 2 * LAG_S))
        started = time.perf_counter()
        for number, (key, record) in enumerate(commits):
            while (ahead := started + number / rate - time.perf_counter()) > 0:
                await asyncio.sleep(min(ahead, 0.001))
            if number >= len(commits) // 2:
                sent[record.id] = time.perf_counter()
            _send(producer, servers, key, record)
        producer.flush()
        await asyncio.sleep(1)
        listening.cancel()
        await asyncio.gather(listening, return_exceptions=True)
    cuts = statistics.quantiles(times, n=100)
    return {"commits": len(sent), "heard": len(times), "p50": cuts[49], "p99": cuts[98]}


async def _neighbours(cache: Cache, messages: int = 500, message_bytes: int = 100_000) -> Figures:
    """How long a small read of the same server takes while a session of 50 MB is compacted, and before."""
    log = MemoryLog(MemoryTopic(partitions=1, topic=f"b{mint_id()[-8:]}"))
    story = Story(1, 0, 1, body_bytes=message_bytes)
    worker = Worker(log, cache, ProjectorSettings())
    for source in (story.opens(), story.commits(messages)):
        for key, record in source:
            await log.produce(0, key, record.headers(), record.value, 1000)
    await worker.once()
    times: list[float] = []

    async def read() -> None:
        while True:
            started = time.perf_counter()
            await cache.call("HGET", make_site(log, cache, 0, ProjectorSettings()).keys.checkpoint, b"next")
            times.append((time.perf_counter() - started) * 1000)

    async def measured(work: Awaitable[object]) -> float:
        times.clear()
        reading = asyncio.create_task(read())
        await work
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        return statistics.quantiles(times, n=100)[98]

    quiet = await measured(asyncio.sleep(1))
    key, record = story.compaction()
    await log.produce(0, key, record.headers(), record.value, 1000)
    started = time.perf_counter()
    busy = await measured(worker.once())
    return {"quiet_p99": quiet, "compacting_p99": busy, "compaction": (time.perf_counter() - started) * 1000}


async def _memory(cache: Cache, messages: int) -> Figures:
    """What one session of so many messages takes, all of its keys together, beside the messages themselves."""
    log = MemoryLog(MemoryTopic(partitions=1, topic=f"b{mint_id()[-8:]}"))
    story = Story(1, 0, 1)
    for source in (story.opens(), story.commits(messages)):
        for key, record in source:
            await log.produce(0, key, record.headers(), record.value, 1000)
    settings = ProjectorSettings()
    await Worker(log, cache, settings).once()
    keys = make_site(log, cache, 0, settings).keys
    names = session_keys(keys.session(key))
    pointer = await cache.call("HGET", names[0], b"mk")
    names = (*names[:-1], names[-1] + pointer)
    taken = {name.rsplit(b":", 1)[-1].decode(): await cache.call("MEMORY USAGE", name) or 0 for name in names[:-1]}
    taken["messages"] = await cache.call("MEMORY USAGE", names[-1], b"SAMPLES", 0)
    payload = sum(map(len, await cache.call("LRANGE", names[-1], 0, -1)))
    return {"payload": payload, "ratio": sum(taken.values()) / payload, **taken}
