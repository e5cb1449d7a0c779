"""Runners of the cases about the projection: records in a wrong order, and a worker that dies between any two
commands of a rewrite."""

from collections.abc import Sequence
from typing import Any

import msgspec

from producer.cache import Argument, Cache, CacheUnavailable, Script
from producer.log import EventLog, LogRecord
from projector.metrics import ProjectorMetrics
from projector.partition import PartitionProjection
from projector.settings import ProjectorSettings
from projector.site import make_site
from projector.states import States
from projector.trouble import Moved
from surfacelog.errors import ProtocolError
from tests.faults.race_cases import as_draft, surface_of
from tests.faults.race_room import TENANT, Node, RaceRoom
from tests.logwriter import LogWriter

__all__ = ["CutCache", "project_all", "projection_of", "run_delivery", "run_kill"]

Event = dict[str, Any]
COMMANDS_MAX = 100


def projection_of(log: EventLog, cache: Cache, partition: int) -> PartitionProjection:
    """What a worker that has just started would have."""
    site = make_site(log, cache, partition, ProjectorSettings())
    return PartitionProjection(site, States(100, 1 << 24), ProjectorMetrics())


async def project_all(log: EventLog, cache: Cache, partition: int) -> None:
    """Opens the partition and folds it to the log's end, as a fresh worker does."""
    projection = projection_of(log, cache, partition)
    await projection.open()
    await projection.advance((await log.ends([partition], 10_000))[partition])


async def run_delivery(case: Event, room: RaceRoom) -> None:
    """The records reach a projection in the given order, one at a time and all in one batch. `room` runs no
    worker."""
    events: list[Event] = case["events"]
    node = await room.new_node()
    for name, together in (("single", False), ("together", True)):
        writer = LogWriter(room.log)
        key = await writer.open(name, TENANT, checks="surface")
        partition = writer.partition(key)
        await project_all(room.log, room.cache, partition)
        offsets = [await writer.commit(key, as_draft(event)) for event in events]
        records = {
            record.offset: record
            for record in await room.log.read(partition, 0, 10_000, 10_000)
            if record.key == key
        }
        delivered = [records[offsets[seq]] for seq in case["delivered"]]
        projection = projection_of(room.log, room.cache, partition)
        await projection.open()
        applied: list[int] = []
        for batch in [delivered] if together else [[record] for record in delivered]:
            await _deliver(projection, batch, room.log, again=len(events) if together else 1)
            applied += await _check_reads(node, name, events, applied)
        assert applied == case["expectApplied"]
        accepted = [verdict.outcome for _, verdict in (await room.history(name)).records]
        assert accepted == ["accepted"] * (1 + len(events))
        shown = msgspec.json.decode((await node.services.reads.head(TENANT, name)).body)
        assert (shown["accepted"], shown["rejected"]) == (1 + len(events), {})


async def _deliver(projection: PartitionProjection, batch: Sequence[LogRecord], log: EventLog, again: int) -> None:
    """Moved means to the worker: open again, and fetch from the checkpoint (here `again` records)."""
    try:
        await projection.project(batch)
    except Moved:
        start = await projection.open()
        await projection.project(await log.read(projection.partition, start, again, 10_000))


async def _check_reads(node: Node, name: str, events: list[Event], applied: list[int]) -> list[int]:
    """What a reader sees is a beginning of the session, whatever came early; the seqs that are new in it."""
    found = msgspec.json.decode((await node.services.reads.surface(TENANT, name)).body)
    assert found["nodes"] == surface_of(events[: found["seq"]])
    assert found["seq"] >= len(applied)
    return list(range(len(applied), found["seq"]))


class CutCache:
    """A cache whose connection breaks after `commands` of them: those ran, the answer of the last one is lost, and
    nothing reaches the server any more."""

    def __init__(self, cache: Cache, commands: int) -> None:
        self._cache = cache
        self._left = commands
        self.cut = False

    async def run(self, script: Script, keys: Sequence[bytes], args: Sequence[Argument]) -> Any:
        self._alive()
        return self._answer(await self._cache.run(script, keys, args))

    async def call(self, command: str, *args: Argument) -> Any:
        self._alive()
        return self._answer(await self._cache.call(command, *args))

    def _alive(self) -> None:
        if self._left <= 0:
            self.cut = True
            raise CacheUnavailable("the connection is cut")
        self._left -= 1

    def _answer(self, answer: Any) -> Any:
        if self._left == 0:
            self.cut = True
            raise CacheUnavailable("the connection was cut before the answer")
        return answer

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cache, name)


async def run_kill(case: Event, room: RaceRoom) -> None:
    """A worker dies after the first, the second, … command of the rewrite, until one gets through: at every moment
    a reader sees the old surface or the new one, or is told to wait; and a fresh worker heals it. `room` runs no
    worker."""
    events: list[Event] = case["events"]
    rewrite = next(place for place, event in enumerate(events) if isinstance(event.get("surfaceOp"), dict))
    old, new = case["mustSurface"]
    node = await room.new_node()
    survived = 0
    for commands in range(1, COMMANDS_MAX):
        writer = LogWriter(room.log)
        name = f"kill-{commands}"
        key = await writer.open(name, TENANT, checks="surface")
        for event in events[:rewrite]:
            await writer.commit(key, as_draft(event))
        partition = writer.partition(key)
        await project_all(room.log, room.cache, partition)
        assert await _surface(node, name) == old
        for event in events[rewrite:]:
            await writer.commit(key, as_draft(event))
        cut = CutCache(room.cache, commands)
        try:
            await project_all(room.log, cut, partition)
        except CacheUnavailable:
            assert cut.cut
        assert await _surface(node, name) in (old, new, None)
        await project_all(room.log, room.cache, partition)
        assert await _surface(node, name) == new
        truth = writer.truths[key]
        shown = await node.services.reads.messages(TENANT, name)
        assert shown.body.endswith(b'"messages":[' + b",".join(truth.messages) + b"]}")
        survived = commands
        if not cut.cut:
            break
    assert survived > max(case["killAfterCommand"]), "no worker came far enough"
    assert survived < COMMANDS_MAX - 1, "no worker ever got through"


async def _surface(node: Node, name: str) -> list[int] | None:
    """The nodes that a reader sees, and the messages are theirs; None when it is told to wait."""
    try:
        surface = msgspec.json.decode((await node.services.reads.surface(TENANT, name, wait_ms=0)).body)
        shown = msgspec.json.decode((await node.services.reads.messages(TENANT, name, wait_ms=0)).body)
    except ProtocolError as refusal:
        if refusal.code != "rebuilding":
            raise
        return None
    assert shown["seq"] == surface["seq"]
    assert len(shown["messages"]) == len(surface["nodes"])
    nodes: list[int] = surface["nodes"]
    return nodes
