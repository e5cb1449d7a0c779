"""One run: a world is made from a seed, clients work on it while things go wrong, all is healed, all is judged."""

import asyncio
import logging
import traceback
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

import msgspec

import producer.flight as flight
import producer.forking as forking
import surfacelog.state as state
from producer.memory_data import MemoryData
from sim.checkers import Finding, check_projections, check_run
from sim.clients import Client
from sim.cluster import Cluster
from sim.evidence import Ask
from sim.faults import Faults
from sim.guard import RealWorldUsed
from sim.history import History, replay
from sim.loop import Deadlock, SimLoop, StepsExceeded, simulate
from sim.projections import Projection, found_projections, wanted_projections
from sim.rawwriter import RawWriter
from sim.temper import Temper, temper_of
from sim.world import World

__all__ = ["Outcome", "run_seed"]

HEAL_S = 60.0
REST_S = 4.0
SMALL = {"SETTLED_MAX": 4, "RECENT_MAX": 12, "KEYS_MAX": 4, "CHUNK_EVENTS": 2}


class Outcome(msgspec.Struct, frozen=True):
    """What one seed led to. `trace`: readable lines; `log`: every record with its verdict."""

    seed: int
    findings: list[Finding]
    trace: list[str]
    log: list[str]
    trace_hash: str
    steps: int
    answers: dict[str, int]
    time_s: float


def run_seed(seed: int) -> Outcome:
    """Runs one seed to its end. Never raises for what the code under test did."""
    loops: list[SimLoop] = []

    async def main(loop: SimLoop) -> Outcome:
        loops.append(loop)
        return await _run(loop)

    try:
        return simulate(main, seed)
    except (Deadlock, StepsExceeded) as error:
        finding = Finding("comes_to_rest", f"{type(error).__name__}: {error}")
    except (Exception, RealWorldUsed) as error:
        finding = Finding("no_unexpected_error", "".join(traceback.format_exception(error)[-4:]))
    loop = loops[0]
    return Outcome(seed, [finding], loop.trace, [], loop.trace_hash, loop.steps, {}, loop.time())


async def _run(loop: SimLoop) -> Outcome:
    world = World(loop, temper_of(loop.random))
    loop.note(f"{world.temper}")
    with _windows(world.temper), _listening(loop):
        return await _live(world)


async def _live(world: World) -> Outcome:
    loop = world.loop
    cluster = Cluster(world)
    faults = Faults(world, cluster)
    clients = [
        Client(world, cluster, f"client{number}", world.sessions[number % world.temper.sessions])
        for number in range(max(world.temper.clients, world.temper.sessions))
    ]
    tasks = [
        loop.spawn(loop.lane(client.name), _program(world, client, number))
        for number, client in enumerate(clients)
    ]
    tasks += [
        loop.spawn(loop.lane(f"raw{number}"), _raw_program(world, f"raw{number}"))
        for number in range(world.temper.raw_writers)
    ]
    storm = loop.spawn(loop.world, faults.run(), "faults")
    await asyncio.gather(*tasks)
    faults.heal()
    await storm
    findings = await _heal(world, cluster)
    if not findings:
        findings = _projections(world, untouched=False)
    everybody = world.chance.random() < 0.5
    if not findings and (everybody or world.lost):
        findings = await _touch(world, cluster, world.sessions if everybody else sorted(world.lost))
        findings += await _heal(world, cluster)
    await asyncio.sleep(0.5)
    histories = replay(world.records())
    findings += check_run(world.evidence, histories)
    if not findings:
        findings = _projections(world, untouched=True)
    if world.refolds and not world.damaged:
        findings.append(
            Finding("held_is_true", f"{world.refolds} sessions were folded anew, and the cache was sound")
        )
    findings += [Finding("no_unexpected_error", error) for error in loop.errors]
    counts: dict[str, int] = {}
    for answer in world.evidence.answers:
        name = answer.code or answer.outcome
        counts[name] = counts.get(name, 0) + 1
    counts["read"] = len(world.evidence.reads)
    return Outcome(
        loop.seed, findings, loop.trace, _log_lines(histories), loop.trace_hash, loop.steps, counts, loop.time()
    )


async def _program(world: World, client: Client, number: int) -> None:
    if number < world.temper.sessions:
        await client.open()
    elif world.chance.random() < 0.7:
        await _opened(world, client.key)
    await client.run(world.temper.operations)


async def _opened(world: World, key: bytes) -> None:
    """Waits a while for the session to be there; whoever comes earlier is told that there is none."""
    for _ in range(40):
        asks = world.evidence.asks
        if any(a.outcome == "accepted" and asks[a.ask].key == key for a in world.evidence.answers):
            return
        await asyncio.sleep(0.05)


async def _raw_program(world: World, name: str) -> None:
    chance = world.chance
    key = world.sessions[0]
    writer = RawWriter(
        world.wire_log(), world.evidence, world.partition(key), key, world.mint_id, lambda: world.end(key)
    )
    await _opened(world, key)
    for _ in range(world.temper.operations):
        await writer.run(_raw_asks(world, name, key, writer))
        await asyncio.sleep(chance.choice((0.0, 0.02, 0.3)))


def _raw_asks(world: World, name: str, key: bytes, writer: RawWriter) -> list[Ask]:
    chance = world.chance
    fate = chance.random()
    if fate < world.temper.claims:
        return [world.asks.plain(name, key, "claim", takeover=chance.random() < 0.5)]
    if fate < world.temper.claims * 1.5 and writer.fence:
        return [world.asks.plain(name, key, "release", fence=writer.fence)]
    # One that expects a seq is not tried again, so its id may still be under way when others have gone on.
    ahead, asks = writer.next_seq, []
    for place in range(chance.choice((1, 2, 4))):
        expected_seq = ahead if place and chance.random() < 0.5 else None
        asks.append(world.asks.append(name, key, fence=writer.fence, expected_seq=expected_seq))
        ahead += len(asks[-1].drafts)
    return asks


async def _heal(world: World, cluster: Cluster) -> list[Finding]:
    """Waits until every partition is projected to its end."""
    until = world.loop.time() + HEAL_S
    # Copies that are still on their way land first, and whoever is paused or dead comes back.
    await asyncio.sleep(REST_S)
    while world.loop.time() < until:
        behind = [p for p in range(world.topic.partitions) if not _at_end(world, p)]
        if not behind:
            return []
        await asyncio.sleep(0.2)
    return [Finding("heals", f"partitions {behind} are not projected {HEAL_S} s after all is well")]


def _projections(world: World, *, untouched: bool) -> list[Finding]:
    """Compares every projection with the fold; those that lost a key only if a record of theirs came since, or if
    `untouched` are to be right too."""
    histories = replay(world.records())
    found, wanted = found_projections(world), wanted_projections(histories, world.settings)
    for key in [key for key, parts in found.items() if _is_parked(parts)]:
        if world.partition(key) in world.feared:
            del found[key], wanted[key]
    for key, end in world.lost.items():
        history = histories.get(key)
        if history is None or key not in wanted:
            continue
        touched = history.steps[-1].offset >= end
        # Nothing is written to a deleted session any more, so what the cache lost of it is never noticed.
        if not touched and (not untouched or history.state.status == "deleted"):
            found.pop(key, None)
            del wanted[key]
    return check_projections(found, wanted)


def _is_parked(parts: Projection) -> bool:
    entry = parts["directory"]
    return isinstance(entry, bytes) and b"faulted" in entry


async def _touch(world: World, cluster: Cluster, sessions: Sequence[bytes]) -> list[Finding]:
    """Damage is noticed when a session is used, and whoever is stuck shows it: each session is claimed once more,
    at every producer."""
    findings = []
    for key in sessions:
        doctor = Client(world, cluster, "doctor", key)
        for process in cluster.producers():
            for _ in range(10):
                ask = world.asks.plain("doctor", key, "claim", takeover=True)
                answer = await doctor.attempt(ask, process)
                if answer.outcome == "accepted" or answer.code in ("gone", "no-session"):
                    break
                if answer.code == "faulted" and world.partition(key) in world.feared:
                    break
                await asyncio.sleep(0.5)
            else:
                text = f"{key!r} at {process.name} still answers {answer.code} long after all is well"
                findings.append(Finding("heals", text))
    return findings


def _at_end(world: World, partition: int) -> bool:
    data: MemoryData = world.cache.data
    place = data.call("HGET", world.keys(partition).checkpoint, b"next")
    return place is not None and int(place) == world.topic.end(partition)


def _log_lines(histories: Mapping[bytes, History]) -> list[str]:
    lines = []
    for history in histories.values():
        for step, later in zip(history.steps, [*history.steps[1:], None], strict=True):
            record, verdict = step.record, step.verdict
            what = (
                "unreadable" if record is None else f"{record.kind} {record.id} seq {record.seq} as {record.fence}"
            )
            dropped = later is not None and later.chain != step.chain and verdict.outcome == "rejected"
            lines.append(
                f"{history.key.decode()} offset {step.offset:3}: {what} -> {verdict.outcome} {verdict.code} "
                f"{verdict.first} next {step.head[0]}{' (the windows overflow)' if dropped else ''}"
            )
    return lines


@contextmanager
def _windows(temper: Temper) -> Iterator[None]:
    if not temper.small_windows:
        yield
        return
    modules = (state, flight, forking)
    kept = [(module, name, getattr(module, name)) for module in modules for name in SMALL if hasattr(module, name)]
    for module, name, _ in kept:
        setattr(module, name, SMALL[name])
    try:
        yield
    finally:
        for module, name, value in kept:
            setattr(module, name, value)


class _Listener(logging.Handler):
    """Errors that the product logs are findings; warnings are lines of the trace."""

    def __init__(self, loop: SimLoop) -> None:
        super().__init__(logging.WARNING)
        self._loop = loop

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if record.exc_info:
            text += f" ({record.exc_info[1]!r})"
        if record.levelno >= logging.ERROR:
            self._loop.errors.append(text)
        self._loop.note(text)


@contextmanager
def _listening(loop: SimLoop) -> Iterator[None]:
    loggers = [logging.getLogger(name) for name in ("surfacelog", "projector", "producer", "gateway")]
    listener = _Listener(loop)
    kept = [(logger.propagate, logger.level) for logger in loggers]
    for logger in loggers:
        logger.addHandler(listener)
        logger.propagate = False
        logger.setLevel(logging.WARNING)
    try:
        yield
    finally:
        for logger, (propagate, level) in zip(loggers, kept, strict=True):
            logger.removeHandler(listener)
            logger.propagate = propagate
            logger.setLevel(level)
