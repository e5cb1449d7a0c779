"""What an accepted append costs beside the bare broker: the figures of `surfacelog bench append`."""

import asyncio
import resource
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

import msgspec
from msgspec import Raw

from gateway.cli.bench_raw import RawRecord, raw_ack_ms, raw_rates
from gateway.cli.bench_servers import bench_servers, projector
from producer.append import AppendIntent
from producer.collector import calm_collector
from producer.connect import open_cache, open_log
from producer.ids import mint_id
from producer.limits import AppendLimits
from producer.producer import Producer
from producer.settings import ServerSettings
from surfacelog.events import Draft
from surfacelog.header import Header
from surfacelog.keys import partition_of, record_key
from surfacelog.state import SessionState

__all__ = ["append_figures"]

TENANT = "bench"
BODY_BYTES = 400
# A short session grows by this much while it is measured, and so many of them are.
TURN_APPENDS = 18
TURN_ROUNDS = 35
ONE_APPENDS = 200
ONE_ROUNDS = 7
ONE_WARM = 3000
Figures = dict[str, Any]


def _draft(number: int) -> Draft:
    text = f"event {number} ".ljust(BODY_BYTES - 80, ".")
    data = {"id": f"m{number}", "role": "user", "content": [{"type": "text", "text": text}]}
    return Draft("user/message", Raw(msgspec.json.encode(data)), surface_op=Raw(b'"append"'))


def append_figures(
    sessions: int = 200, commits: int = 20_000, turns: int = 10_000, partitions: int = 16, depth: int = 8
) -> Figures:
    """Rates in commits a second, times in ms, memory in bytes, CPU time of the producer's process in us a commit.
    `ratio` of a rate: ours to the bare broker's; of a time: how many times as long. `growth`: of the largest
    median to that of the shortest session."""
    with bench_servers(partitions) as servers:
        calm_collector()
        return asyncio.run(_measure(servers, sessions, commits, turns, depth))


async def _measure(servers: ServerSettings, sessions: int, commits: int, turns: int, depth: int) -> Figures:
    log = await open_log(servers)
    cache = await open_cache(servers)
    limits = AppendLimits(append_timeout_ms=60_000, append_writers_max=20_000)
    producer = Producer(log, cache, limits)
    await producer.start()
    figures: Figures = {"sessions": sessions, "commits": commits, "body_bytes": len(_draft(0).data)}
    try:
        with projector(servers):
            figures["many_sessions"] = await _many(servers, producer, sessions, commits, depth)
            figures["pipelined"] = await _pipelined(producer, commits // 4)
            figures["turns"] = await _turns(producer, turns)
            figures["memory"] = await _memory(producer, 10_000)
            # Last: until the broker's JVM has compiled what lone records need, it takes most of the machine.
            figures["one_session"] = await _one(servers, producer)
    finally:
        await producer.close()
        await cache.close()
        await log.close()
    return figures


def _raw(servers: ServerSettings, count: int, sessions: int) -> list[RawRecord]:
    """Records of the very bytes and headers that the ledger writes."""
    state = SessionState()
    state.chain = bytes(32)
    found: list[RawRecord] = []
    for number in range(count):
        key = record_key(TENANT, f"s{number % sessions}")
        record = AppendIntent([_draft(number)]).record(state, mint_id(), 1_760_000_000_000, mint_id())
        found.append((partition_of(key, servers.partition_count), key, record.headers(), record.value))
    return found


Answer = TypeVar("Answer")


async def _aside(work: Callable[[], Answer]) -> Answer:
    return await asyncio.get_running_loop().run_in_executor(None, work)


async def _raw_topic(servers: ServerSettings) -> str:
    topic = f"raw-{mint_id()}"
    await (await open_log(msgspec.structs.replace(servers, topic=topic))).close()
    return topic


async def _many(servers: ServerSettings, producer: Producer, sessions: int, commits: int, depth: int) -> Figures:
    """Many sessions at once, each with `depth` appends under way."""
    names = [f"s{number}" for number in range(sessions)]
    await asyncio.gather(*(producer.create(TENANT, Header(name, 0)) for name in names))
    records = _raw(servers, commits, sessions)
    topics = (await _raw_topic(servers), await _raw_topic(servers))
    raw = await _aside(lambda: raw_rates(servers, topics, records))
    # Half a million small objects are work for the collector, which is not the append's.
    records.clear()
    await _load(producer, names, commits // 10, depth)
    used = time.process_time()
    rate = await _load(producer, names, commits, depth)
    used = time.process_time() - used
    return {
        "raw_produce_per_s": round(raw.produce),
        "raw_consume_per_s": round(raw.consume),
        "raw_per_s": round(raw.after),
        "raw_beside_per_s": round(raw.beside),
        "accepted_per_s": round(rate),
        "ratio": round(rate / raw.after, 3),
        "ratio_beside": round(rate / raw.beside, 3),
        "producer_cpu_us": round(used / commits * 1e6),
    }


async def _load(producer: Producer, names: Sequence[str], commits: int, depth: int) -> float:
    left = iter([_draft(number) for number in range(commits)])

    async def client(name: str) -> None:
        for draft in left:
            await producer.append(TENANT, name, [draft])

    started = time.perf_counter()
    await asyncio.gather(*(client(name) for name in names for _ in range(depth)))
    return commits / (time.perf_counter() - started)


async def _one(servers: ServerSettings, producer: Producer) -> Figures:
    """One session, one append after another, in turn with the bare broker, so that noise falls on both."""
    await producer.create(TENANT, Header("one", 0))
    topic = await _raw_topic(servers)
    records = _raw(servers, ONE_APPENDS, 1)
    raw: list[float] = []
    times: list[float] = []
    await _times(lambda number: producer.append(TENANT, "one", [_draft(number)]), ONE_WARM)
    for _ in range(ONE_ROUNDS):
        raw.append(await _aside(lambda: raw_ack_ms(servers, topic, records)))
        times += await _times(lambda number: producer.append(TENANT, "one", [_draft(number)]), ONE_APPENDS)
    ack, median = statistics.median(raw), statistics.median(times)
    return {
        "raw_ack_p50_ms": round(ack, 3),
        "accepted_p50_ms": round(median, 3),
        "accepted_p99_ms": round(statistics.quantiles(times, n=100)[98], 3),
        "ratio": round(median / ack, 2),
    }


async def _times(work: Callable[[int], Awaitable[object]], count: int) -> list[float]:
    found: list[float] = []
    for number in range(count):
        started = time.perf_counter()
        await work(number)
        found.append((time.perf_counter() - started) * 1000)
    return found


async def _pipelined(producer: Producer, commits: int) -> Figures:
    """One session with a full pipeline."""
    await producer.create(TENANT, Header("pipe", 0))
    await _load(producer, ["pipe"], commits // 10, 32)
    used = time.process_time()
    rate = await _load(producer, ["pipe"], commits, 32)
    used = time.process_time() - used
    return {"accepted_per_s": round(rate), "producer_cpu_us": round(used / commits * 1e6)}


async def _turns(producer: Producer, turns: int) -> Figures:
    """What an append costs in a short, a longer and a long session: they are appended to in turn, so that whatever
    else the machine does falls on all of them. p50 of many; CPU time is that of the whole producer process."""
    lengths = sorted({length for length in (10, 1_000, turns) if length <= turns})
    times: dict[int, list[float]] = {length: [] for length in lengths}
    cpu: dict[int, list[float]] = {length: [] for length in lengths}
    for length in lengths[1:]:
        await producer.create(TENANT, Header(f"turns-{length}", 0))
        await _load(producer, [f"turns-{length}"], length, 32)
    for round_number in range(TURN_ROUNDS):
        # The shortest is made anew each time, or it would not stay short.
        names = {lengths[0]: f"turns-{lengths[0]}-{round_number}"} | {n: f"turns-{n}" for n in lengths[1:]}
        await producer.create(TENANT, Header(names[lengths[0]], 0))
        await _load(producer, [names[lengths[0]]], lengths[0], 8)
        for number in range(TURN_APPENDS):
            # Each follows each of the others equally often: what an append leaves to do falls on the next one.
            first = number % len(lengths)
            for length in (lengths[first:] + lengths[:first])[:: -1 if number % 2 else 1]:
                draft = _draft(number)
                started, used = time.perf_counter(), time.process_time()
                await producer.append(TENANT, names[length], [draft])
                times[length].append((time.perf_counter() - started) * 1e3)
                cpu[length].append((time.process_time() - used) * 1e6)
    figures: Figures = {"appends_each": TURN_ROUNDS * TURN_APPENDS}
    for length in lengths:
        figures[f"p50_ms_at_{length}"] = round(statistics.median(times[length]), 3)
        figures[f"cpu_us_at_{length}"] = round(statistics.median(cpu[length]))
    for name, found in (("growth", times), ("cpu_growth", cpu)):
        medians = [statistics.median(found[length]) for length in lengths]
        figures[name] = round(max(medians) / medians[0], 3)
    return figures


async def _memory(producer: Producer, count: int) -> Figures:
    """What open sessions cost in the producer: resident bytes after one append to each."""
    before = _resident_bytes()
    for start in range(0, count, 500):
        names = [f"m{number}" for number in range(start, min(start + 500, count))]
        await asyncio.gather(*(_opened(producer, name) for name in names))
    grown = _resident_bytes() - before
    return {"sessions": count, "grown_bytes": grown, "bytes_per_session": round(grown / count)}


async def _opened(producer: Producer, name: str) -> None:
    await producer.create(TENANT, Header(name, 0))
    await producer.append(TENANT, name, [_draft(0)])


def _resident_bytes() -> int:
    try:
        with open("/proc/self/statm", encoding="ascii") as status:
            return int(status.read().split()[1]) * resource.getpagesize()
    except OSError:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
