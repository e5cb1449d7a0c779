"""Workers that come, go, are killed and paused under load on real Kafka and Redis: the cache stays the fold."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from gateway.cli.verify import verify_sessions
from producer.cache import Cache
from producer.checkpoint import read_checkpoint
from producer.connect import open_cache, open_log
from producer.log import EventLog
from producer.settings import ServerSettings, read_settings
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.worker import Worker
from tests.logwriter import LogWriter
from tests.projection_reader import assert_equals_truth

ROOT = Path(__file__).resolve().parents[2]
PARTITIONS = 8
SESSIONS = 24


class Fleet:
    """Projector processes by member name."""

    def __init__(self, environment: dict[str, str], folder: Path) -> None:
        self._environment = environment
        self._folder = folder
        self._processes: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str) -> None:
        command = [sys.executable, "-m", "gateway.cli.main", "project", "--member", name]
        with (self._folder / f"{name}.log").open("ab") as output:
            self._processes[name] = subprocess.Popen(
                command, env=self._environment, cwd=ROOT, stdout=output, stderr=output
            )

    def signal(self, name: str, number: int) -> None:
        self._processes[name].send_signal(number)
        if number in (signal.SIGKILL, signal.SIGTERM):
            self._processes[name].wait(30)

    def stop(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()


@pytest.fixture
def environment(kafka: str, redis: str, unique: str) -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SURFACELOG_")}
    return kept | {
        "SURFACELOG_KAFKA": kafka,
        "SURFACELOG_REDIS": redis,
        "SURFACELOG_TOPIC": unique,
        "SURFACELOG_GROUP": unique,
        "SURFACELOG_PARTITIONS": str(PARTITIONS),
        "SURFACELOG_POLL_INTERVAL_MAX_MS": "8000",
    }


@pytest.fixture
def fleet(environment: dict[str, str], tmp_path: Path) -> Iterator[Fleet]:
    made = Fleet(environment, tmp_path)
    yield made
    made.stop()


@pytest.fixture
async def log(environment: dict[str, str]) -> AsyncIterator[EventLog]:
    made = await open_log(read_settings(ServerSettings, environment))
    yield made
    await made.close()


@pytest.fixture
async def cache(environment: dict[str, str]) -> AsyncIterator[Cache]:
    made = await open_cache(read_settings(ServerSettings, environment))
    yield made
    await made.close()


async def test_whatever_becomes_of_the_workers_the_cache_is_the_fold(
    log: EventLog, cache: Cache, fleet: Fleet
) -> None:
    writer = LogWriter(log)
    fleet.start("a")
    fleet.start("b")
    keys = [await writer.open(f"s{number}") for number in range(SESSIONS)]
    writing = asyncio.create_task(write_until_cancelled(writer, keys))
    await caught_up(log, cache)
    fleet.signal("a", signal.SIGKILL)
    await asyncio.sleep(1)
    fleet.start("c")
    fleet.signal("b", signal.SIGSTOP)
    await caught_up(log, cache)
    fleet.start("a")
    await asyncio.sleep(10)
    fleet.signal("b", signal.SIGCONT)
    await caught_up(log, cache)
    fleet.signal("c", signal.SIGTERM)
    await caught_up(log, cache)
    writing.cancel()
    await asyncio.gather(writing, return_exceptions=True)
    await caught_up(log, cache)
    found = await verify_sessions(log, cache)
    assert found.differences == []
    assert found.sessions == SESSIONS
    for key in keys:
        await assert_equals_truth(cache, writer, key)


async def test_a_killed_workers_partitions_move_within_seconds(log: EventLog, cache: Cache, fleet: Fleet) -> None:
    writer = LogWriter(log)
    keys = [await writer.open(f"s{number}") for number in range(SESSIONS)]
    fleet.start("a")
    fleet.start("b")
    await caught_up(log, cache)
    await asyncio.sleep(6)
    fleet.signal("a", signal.SIGKILL)
    killed = time.monotonic()
    for key in keys:
        await writer.say(key, "after the death")
    await caught_up(log, cache)
    moved_s = time.monotonic() - killed
    print(f"partitions moved after {moved_s:.1f} s")
    # Session timeout 6 s, one rebalance, one batch; a loaded machine needs some more.
    assert 3 < moved_s < 15


async def test_a_worker_that_restarts_under_its_name_gets_its_own_partitions_back(
    log: EventLog, cache: Cache, environment: dict[str, str]
) -> None:
    writer = LogWriter(log)
    keys = [await writer.open(f"s{number}") for number in range(SESSIONS)]

    def worker_of(member: str) -> Worker:
        settings = ProjectorSettings(group=environment["SURFACELOG_GROUP"], member=member, fetch_wait_ms=50)
        return Worker(log, cache, settings)

    async def shared(*workers: Worker) -> None:
        async with asyncio.timeout(60):
            while sorted(number for one in workers for number in one.projections) != list(range(PARTITIONS)):
                await asyncio.sleep(0.05)

    first, second = worker_of("first"), worker_of("second")
    running = [asyncio.create_task(worker.run()) for worker in (first, second)]
    async with asyncio.timeout(60):
        while not (first.projections and second.projections):
            await asyncio.sleep(0.05)
    await shared(first, second)
    own, others = set(first.projections), dict(second.projections)
    first.stop()
    await running[0]
    again = worker_of("first")
    running[0] = asyncio.create_task(again.run())
    await shared(again, second)
    for key in keys:
        await writer.say(key, "after the restart")
    await caught_up(log, cache)
    assert set(again.projections) == own
    # The very same objects: nothing was taken from the other worker and given back.
    assert {number: id(one) for number, one in second.projections.items()} == {
        number: id(one) for number, one in others.items()
    }
    for worker in (again, second):
        worker.stop()
    await asyncio.gather(*running)
    for key in keys:
        await assert_equals_truth(cache, writer, key)


async def write_until_cancelled(writer: LogWriter, keys: list[bytes]) -> None:
    while True:
        for key in keys:
            # Shielded: a write that is cut in the middle would leave the truth behind the log.
            await asyncio.shield(writer.step(key))
        await asyncio.sleep(0.02)


async def reached(log: EventLog, cache: Cache) -> list[int]:
    found = []
    for partition in range(log.partitions):
        keys = make_site(log, cache, partition, ProjectorSettings()).keys
        place = read_checkpoint(await cache.call("HGETALL", keys.checkpoint))
        found.append(0 if place is None else place.next)
    return found


async def caught_up(log: EventLog, cache: Cache) -> None:
    """Waits until all that is in the log now is folded."""
    ends = await log.ends(range(log.partitions), 10_000)
    async with asyncio.timeout(60):
        while any(now < ends[partition] for partition, now in enumerate(await reached(log, cache))):
            await asyncio.sleep(0.05)
