"""The ledger on real Kafka and real Redis for one test: a projecting worker, and as many nodes as are asked for.

A node is what one machine would run: connections, a producer and a gateway of its own, talked to over HTTP.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import httpx
import msgspec

from gateway.app import create_app
from gateway.paths import session_path
from gateway.services import Services, services_for
from gateway.settings import GatewaySettings
from producer.cache import Cache
from producer.connect import open_cache, open_log
from producer.log import EventLog, LogRecord
from producer.producer import Producer
from producer.settings import ServerSettings, read_settings
from projector.settings import ProjectorSettings
from projector.worker import Worker
from surfacelog.accept import accept
from surfacelog.events import read_lines
from surfacelog.header import Header, read_header
from surfacelog.keys import partition_of, record_key
from surfacelog.records import Record, read_record
from surfacelog.session import Session
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["NOW_MS", "TENANT", "History", "Node", "RaceRoom", "open_race_room"]

# The tenant of a gateway without credentials.
TENANT = "local"
NOW_MS = 1_760_000_000_000
TIMEOUT_MS = 20_000


class History(msgspec.Struct, frozen=True):
    """A session as the log has it, whatever any answer said. `lines`: its accepted events."""

    state: SessionState
    records: list[tuple[Record, Verdict]]
    lines: list[bytes]

    @property
    def events(self) -> list[dict[str, Any]]:
        """The accepted events, decoded."""
        return [msgspec.json.decode(line) for line in self.lines]

    @property
    def kinds(self) -> list[str]:
        """Kinds of all accepted records, in order."""
        return [record.kind for record, verdict in self.records if verdict.outcome == "accepted"]

    def session(self) -> Session:
        """The in-memory reference of these events; raises when they have a gap or break a rule."""
        return Session.load(self.lines, read_header(self.state.header_raw))


class Node:
    """`client` asks the node's gateway."""

    def __init__(self, log: EventLog, cache: Cache, producer: Producer, services: Services) -> None:
        self.log = log
        self.cache = cache
        self.producer = producer
        self.services = services
        transport = httpx.ASGITransport(create_app(services), raise_app_exceptions=False)  # type: ignore[arg-type]
        self.client = httpx.AsyncClient(transport=transport, base_url="http://ledger", timeout=30)

    async def create(self, session: str, **fields: Any) -> str:
        """Makes a session over HTTP; its open id."""
        made = await self.client.post("/v1/sessions", json={"id": session, "checks": "surface", **fields})
        assert made.status_code == 201, made.text
        return str(made.json()["openId"])

    async def append(self, session: str, *events: Any, headers: dict[str, str] | None = None, **query: Any) -> Any:
        """Appends events over HTTP; the response."""
        path = session_path(session, "events")
        return await self.client.post(path, content=msgspec.json.encode(events), headers=headers, params=query)

    async def get(self, session: str, what: str, **query: Any) -> dict[str, Any]:
        """A read that must be answered."""
        found = await self.client.get(session_path(session, what), params={"wait_ms": 20_000, **query})
        assert found.status_code == 200, found.text
        told: dict[str, Any] = found.json()
        return told


class RaceRoom:
    """`log`, `cache`: the test's own connections. `new_node` starts another machine, `stop` ends one."""

    def __init__(self, settings: ServerSettings, log: EventLog, cache: Cache) -> None:
        self.settings = settings
        self.log = log
        self.cache = cache
        self._stacks: dict[Node, AsyncExitStack] = {}

    async def new_node(self) -> Node:
        """A machine that knows nothing but where the servers are."""
        async with AsyncExitStack() as stack:
            log = await open_log(self.settings)
            stack.push_async_callback(log.close)
            cache = await open_cache(self.settings)
            stack.push_async_callback(cache.close)
            producer = Producer(log, cache, now_ms=lambda: NOW_MS)
            await producer.start()
            stack.push_async_callback(producer.close)
            settings = GatewaySettings(stream_heartbeat_ms=100)
            services = services_for(settings, log, cache, producer, now_ms=lambda: NOW_MS)
            stack.push_async_callback(services.close)
            node = Node(log, cache, producer, services)
            stack.push_async_callback(node.client.aclose)
            self._stacks[node] = stack.pop_all()
            return node
        raise AssertionError("an exit stack swallows nothing")

    async def stop(self, node: Node) -> None:
        """Ends a machine."""
        await self._stacks.pop(node).aclose()

    async def close(self) -> None:
        """Ends all machines."""
        for node in list(self._stacks):
            await self.stop(node)

    def header(self, session: str, **fields: Any) -> Header:
        """A session's header with checks `surface`, as an import has it: the cases bring half turns."""
        return Header(session, NOW_MS, checks="surface", **fields)

    async def records(self, session: str) -> list[LogRecord]:
        """Every record of the session's key, straight from the log."""
        key = record_key(TENANT, session)
        partition = partition_of(key, self.log.partitions)
        end = (await self.log.ends([partition], TIMEOUT_MS))[partition]
        found: list[LogRecord] = []
        at = 0
        while at < end:
            batch = await self.log.read(partition, at, 500, TIMEOUT_MS)
            at = batch[-1].offset + 1
            found += [record for record in batch if record.key == key]
        return found

    async def history(self, session: str) -> History:
        """What a fold of the log from its start says."""
        state = SessionState()
        decided: list[tuple[Record, Verdict]] = []
        lines: list[bytes] = []
        for raw in await self.records(session):
            record = read_record(raw.headers, raw.value)
            assert record is not None
            verdict = accept(state, record, raw.offset)
            decided.append((record, verdict))
            if verdict.outcome == "accepted" and record.kind == "commit":
                lines += read_lines(record.value)
        return History(state, decided, lines)


@asynccontextmanager
async def open_race_room(
    kafka: str, redis: str, topic: str, *, workers: Sequence[ProjectorSettings] | None = None
) -> AsyncIterator[RaceRoom]:
    """A ledger of its own topic whose workers (one, unless said otherwise) run."""
    own = {"SURFACELOG_KAFKA": kafka, "SURFACELOG_REDIS": redis, "SURFACELOG_TOPIC": topic}
    settings = read_settings(ServerSettings, own | {"SURFACELOG_PARTITIONS": "4"})
    async with AsyncExitStack() as stack:
        log = await open_log(settings)
        stack.push_async_callback(log.close)
        cache = await open_cache(settings)
        stack.push_async_callback(cache.close)
        for worker_settings in workers if workers is not None else [ProjectorSettings(group=topic, member="w")]:
            worker = Worker(log, cache, worker_settings)
            stack.push_async_callback(_end, worker, asyncio.create_task(worker.run(), name="worker"))
        room = RaceRoom(settings, log, cache)
        stack.push_async_callback(room.close)
        yield room


async def _end(worker: Worker, task: asyncio.Task[None]) -> None:
    worker.stop()
    await task
