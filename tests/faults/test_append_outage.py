"""Appends while a real Kafka or a real Redis goes away under load: clear codes in time, nothing lost or twice."""

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec import Raw

from deploy.valkey import ValkeyServer
from producer.append import IdempotencyKey
from surfacelog.errors import LedgerError
from surfacelog.events import Draft
from tests.faults.race_room import TENANT, Node, RaceRoom, open_race_room
from tests.servers import Brokers

TIMEOUT_MS = 3_000
# A refusal may come a little late on a busy machine, but never as if there were no deadline.
LATE_S = 2.0
# A server ends with the thread that started it, so that has to outlive the test.
HANDS = ThreadPoolExecutor(1)
PASSING = {"unavailable", "rebuilding", "overloaded", "locked", "unknown-outcome"}


class Load:
    """Clients that append one numbered event after another, each until it is acknowledged, on two machines."""

    def __init__(self, nodes: list[Node], sessions: list[str]) -> None:
        self.nodes = nodes
        self.sessions = sessions
        self.acknowledged: dict[str, dict[int, int]] = {session: {} for session in sessions}
        self.codes: set[str] = set()
        self.slowest_s = 0.0
        self.stopped = False

    async def client(self, session: str, offset: int) -> None:
        number = offset
        attempt = 0
        while not self.stopped:
            data = Raw(b'{"n":%d}' % number)
            attempt += 1
            producer = self.nodes[attempt % len(self.nodes)].producer
            started = asyncio.get_running_loop().time()
            try:
                done = await producer.append(
                    TENANT,
                    session,
                    [Draft("x/note", data, ignorable=True)],
                    key=IdempotencyKey(f"k{number}", 0),
                    timeout_ms=TIMEOUT_MS,
                )
            except LedgerError as error:
                self.codes.add(error.code)
                await asyncio.sleep(0.1)
            else:
                self.acknowledged[session][number] = done.seq
                number += 2
            self.slowest_s = max(self.slowest_s, asyncio.get_running_loop().time() - started)

    async def run(self, outage: Callable[[], object], heal: Callable[[], object], away_s: float) -> None:
        """Appends before, during and after the outage."""
        loop = asyncio.get_running_loop()
        clients = [asyncio.ensure_future(self.client(s, offset)) for s in self.sessions for offset in (0, 1)]
        await asyncio.sleep(1.0)
        await loop.run_in_executor(HANDS, outage)
        await asyncio.sleep(away_s)
        await loop.run_in_executor(HANDS, heal)
        before = self.count
        for _ in range(300):
            await asyncio.sleep(0.1)
            if self.count > before + 4 * len(self.sessions):
                break
        assert self.count > before, "nothing went on after the outage"
        self.stopped = True
        await asyncio.gather(*clients)

    @property
    def count(self) -> int:
        return sum(map(len, self.acknowledged.values()))

    async def judge(self, room: RaceRoom) -> None:
        """Every acknowledged event is where it was told to be, and nothing is there twice."""
        assert self.slowest_s < TIMEOUT_MS / 1000 + LATE_S
        assert self.codes <= PASSING
        for session in self.sessions:
            history = await room.history(session)
            numbers = [event["data"]["n"] for event in history.events]
            assert [event["seq"] for event in history.events] == list(range(len(numbers)))
            assert len(set(numbers)) == len(numbers), "an event is there twice"
            for number, seq in self.acknowledged[session].items():
                assert numbers[seq] == number, "an acknowledged event is not where it was told to be"


async def loaded(room: RaceRoom) -> Load:
    nodes = [await room.new_node(), await room.new_node()]
    sessions = [f"s{number}" for number in range(6)]
    for session in sessions:
        await nodes[0].producer.create(TENANT, room.header(session))
    return Load(nodes, sessions)


@pytest.mark.parametrize("gone_s", [0.0, 4.0], ids=["back at once", "away longer than the deadline"])
async def test_a_redis_that_is_killed_and_comes_back_empty_loses_nothing(
    kafka: str, redis_server: ValkeyServer, unique: str, gone_s: float
) -> None:
    async with open_race_room(kafka, redis_server.url, unique) as room:
        load = await loaded(room)
        await load.run(redis_server.kill, redis_server.restart, gone_s)
        # A short outage is ridden out within the deadline.
        assert bool(load.codes) == bool(gone_s)
        await load.judge(room)


async def test_a_redis_that_hangs_is_told_in_time(kafka: str, redis_server: ValkeyServer, unique: str) -> None:
    async with open_race_room(kafka, redis_server.url, unique) as room:
        load = await loaded(room)
        await load.run(redis_server.pause, redis_server.resume, 5.0)
        assert load.codes
        await load.judge(room)


@pytest.mark.parametrize("fate", ["killed", "paused"])
async def test_a_broker_that_goes_away_under_load_loses_and_doubles_nothing(
    kafka_broker: Brokers, redis: str, unique: str, fate: str
) -> None:
    async with open_race_room(kafka_broker.bootstrap, redis, unique) as room:
        load = await loaded(room)
        outage, heal = (
            (lambda: kafka_broker.kill(0), lambda: kafka_broker.restart(0))
            if fate == "killed"
            else (lambda: kafka_broker.pause(0), lambda: kafka_broker.resume(0))
        )
        await load.run(outage, heal, 5.0)
        assert load.codes, "nobody noticed that the log was away"
        await load.judge(room)
