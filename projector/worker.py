"""A worker: a member of the group that shares the partitions, and a projection for each one it has.

No record and no outage ends it: a halted partition stands still loudly, trouble with log or cache pauses a
partition, which is tried again, and all others go on.
"""

import asyncio
import logging
from collections.abc import Callable
from uuid import uuid4

from producer.cache import Cache, CacheUnavailable
from producer.log import Batch, EventLog, LogConsumer, LogRecord, Unavailable
from projector.metrics import ProjectorMetrics
from projector.partition import PartitionProjection
from projector.settings import ProjectorSettings
from projector.site import Site, make_site
from projector.states import States
from projector.trouble import Halted, Moved
from surfacelog.errors import ProtocolError

__all__ = ["Worker"]

logger = logging.getLogger(__name__)
BACKOFF_MS_MIN = 20
FAILURES_MAX = 20
HALTED_RETRY_S = 10.0
STALLED_S = 3.0
STARVED_S = 60.0
TRIES = 8


class Worker:
    """`site` makes the site of a partition; the default is this release's."""

    def __init__(
        self,
        log: EventLog,
        cache: Cache,
        settings: ProjectorSettings,
        metrics: ProjectorMetrics | None = None,
        *,
        site: Callable[[int], Site] | None = None,
    ) -> None:
        self.log = log
        self.cache = cache
        self.settings = settings
        self.metrics = metrics or ProjectorMetrics()
        self.states = States(settings.states_count, settings.states_bytes)
        self.projections: dict[int, PartitionProjection] = {}
        self._site = site or (lambda partition: make_site(log, cache, partition, settings))
        self._retry_at: dict[int, float] = {}
        self._backoff_ms: dict[int, int] = {}
        self._halted: set[int] = set()
        self._moved_at: dict[int, float] = {}
        self._look_at = 0.0
        self._fed_at = 0.0
        self._stopping = False

    @property
    def halted(self) -> frozenset[int]:
        """Partitions that stand still."""
        return frozenset(self._halted)

    def stop(self) -> None:
        """`run` ends after the batch in hand."""
        self._stopping = True

    async def run(self) -> None:
        """Projects until `stop`. Raises only what is no fault of a record, the log or the cache."""
        settings = self.settings
        group, member = settings.group or f"{self.log.topic}-projector", settings.member or uuid4().hex
        while not self._stopping:
            self._forget(Batch({}, lost=tuple(self.projections)))
            async with self.log.consumer(group, member) as consumer:
                failures = 0
                # A client that was fenced, or that lost its way, never comes back; a new one does.
                while not self._stopping and failures < FAILURES_MAX:
                    failures = 0 if await self.step(consumer) else failures + 1

    async def step(self, consumer: LogConsumer) -> bool:
        """One fetch and all that it brings; False when the log did not answer."""
        started = asyncio.get_running_loop().time()
        try:
            batch = await consumer.fetch(self.settings.batch_records, self._wait_ms())
        except Unavailable as error:
            logger.warning("the log does not answer: %s", error)
            await asyncio.sleep(self.settings.fetch_wait_ms / 1000)
            return False
        except ProtocolError as error:
            # The log no longer has what comes next: opening the partition anew looks at it closely.
            partition = error.detail.get("partition")
            if partition not in self.projections:
                logger.exception("the log refuses a fetch, and not for a partition of this worker")
                await asyncio.sleep(self.settings.fetch_wait_ms / 1000)
                return False
            self._later(consumer, partition, error)
            return True
        self._forget(batch)
        now = asyncio.get_running_loop().time()
        if batch.records:
            self._fed_at = now
            self.metrics.took("fetch", now - started)
        for partition in batch.assigned:
            self._retry_at[partition] = now
        due = [partition for partition, at in self._retry_at.items() if at <= now]
        if due:
            await asyncio.gather(*(self._open(consumer, partition) for partition in due))
        if len(batch.records) == 1:
            # What a lone append waits for: no task, and no turns of the loop, beside it.
            for partition, records in batch.records.items():
                await self._project(consumer, partition, records)
        elif batch.records:
            await asyncio.gather(*(self._project(consumer, *item) for item in batch.records.items()))
        await self._look_around(consumer)
        return True

    async def once(self) -> None:
        """Projects every partition, without a group, up to the log's end as it was at the start. For batch work;
        beside running workers it is harmless and useless. Raises Unavailable or CacheUnavailable."""
        partitions = range(self.log.partitions)
        ends = await self.log.ends(partitions, self.settings.log_timeout_ms)
        for partition in partitions:
            await self._once(partition, ends[partition])

    async def _once(self, partition: int, end: int) -> None:
        projection = self._projection(partition)
        tries, reached = TRIES, -1
        while tries:
            try:
                await projection.open()
                await projection.advance(end)
                await projection.mend()
                return
            except Moved:
                # Sessions that are parked one after the other move it, and it gets on.
                tries = TRIES if projection.place.next > reached else tries - 1
                reached = max(reached, projection.place.next)
            except Halted as halt:
                self._halt(partition, halt)
                return
        raise Unavailable(f"partition {partition} does not get past offset {reached}; another worker moves it")

    def _wait_ms(self) -> int:
        if not self._retry_at:
            return self.settings.fetch_wait_ms
        soonest_s = min(self._retry_at.values()) - asyncio.get_running_loop().time()
        return max(1, min(self.settings.fetch_wait_ms, int(soonest_s * 1000)))

    def _projection(self, partition: int) -> PartitionProjection:
        found = self.projections.get(partition)
        if found is None:
            found = PartitionProjection(self._site(partition), self.states, self.metrics)
            self.projections[partition] = found
        return found

    def _forget(self, batch: Batch) -> None:
        for partition in (*batch.lost, *batch.assigned):
            projection = self.projections.get(partition)
            if projection is not None:
                projection.drop()
            self._retry_at.pop(partition, None)
            self._backoff_ms.pop(partition, None)
            self._moved_at.pop(partition, None)
            self._halted.discard(partition)
        for partition in batch.lost:
            self.projections.pop(partition, None)
            self.metrics.forget(partition)
        self.metrics.halted.set(len(self._halted))

    async def _open(self, consumer: LogConsumer, partition: int) -> None:
        projection = self._projection(partition)
        try:
            start = await projection.open()
            await consumer.seek(partition, start)
        except Halted as halt:
            consumer.pause(partition)
            self._halt(partition, halt)
        except Exception as error:
            self._later(consumer, partition, error)
        else:
            self._retry_at.pop(partition, None)
            self._halted.discard(partition)
            self.metrics.halted.set(len(self._halted))
            self._moved_at[partition] = asyncio.get_running_loop().time()
            fields = {"partition": partition, "offset": start, "target": projection.place.target}
            logger.info("a partition is projected", extra=fields)

    async def _project(self, consumer: LogConsumer, partition: int, records: list[LogRecord]) -> None:
        if partition in self._retry_at:
            # Records that were fetched before the trouble; they come again after the seek.
            return
        projection = self._projection(partition)
        try:
            await projection.project(records)
        except Halted as halt:
            consumer.pause(partition)
            projection.drop()
            self._halt(partition, halt)
        except Exception as error:
            self._later(consumer, partition, error)
        else:
            self._backoff_ms.pop(partition, None)
            self._moved_at[partition] = asyncio.get_running_loop().time()

    async def _look_around(self, consumer: LogConsumer) -> None:
        """What was lost or damaged must heal even where nothing new arrives."""
        now = asyncio.get_running_loop().time()
        if now < self._look_at:
            return
        self._look_at = now + self.settings.idle_ms / 1000
        partitions = [partition for partition in self._moved_at if partition not in self._retry_at]
        try:
            ends = await self.log.ends(partitions, self.settings.log_timeout_ms)
        except Unavailable:
            ends = {}
        await asyncio.gather(*(self._look(consumer, partition, ends.get(partition)) for partition in partitions))

    async def _look(self, consumer: LogConsumer, partition: int, end: int | None) -> None:
        projection = self.projections[partition]
        now = asyncio.get_running_loop().time()
        quiet_s = now - self._moved_at[partition]
        try:
            if end is not None:
                if end < projection.place.next:
                    raise Moved("the log ends before what was folded")
                # In a backlog a partition waits for its turn; but where nothing comes at all, or for very long,
                # something was missed, and a new seek finds it.
                stalled_s = STALLED_S if now - self._fed_at >= STALLED_S else STARVED_S
                if end > projection.place.next and quiet_s >= stalled_s:
                    raise Moved(f"the log has records up to {end}, and none came")
                self.metrics.lag_records.labels(str(partition)).set(end - projection.place.next)
            if quiet_s >= self.settings.idle_ms / 1000:
                await projection.tick()
            await projection.mend()
        except Halted as halt:
            consumer.pause(partition)
            projection.drop()
            self._halt(partition, halt)
        except Exception as error:
            self._later(consumer, partition, error)
        else:
            if end == projection.place.next:
                self._backoff_ms.pop(partition, None)

    def _later(self, consumer: LogConsumer, partition: int, error: Exception) -> None:
        consumer.pause(partition)
        self._projection(partition).drop()
        backoff_ms = self._backoff_ms.get(partition, BACKOFF_MS_MIN)
        # Another worker's progress is nothing to wait for; only what repeats is.
        self._backoff_ms[partition] = min(backoff_ms * 2, self.settings.backoff_ms_max)
        self._retry_at[partition] = asyncio.get_running_loop().time() + backoff_ms / 1000
        fields = {"partition": partition, "pause_ms": backoff_ms, "error_type": type(error).__name__}
        if isinstance(error, (Moved, Unavailable, CacheUnavailable)):
            logger.warning("a partition is paused: %s", error, extra=fields)
        else:
            # A fault of one partition must not stop the others.
            self.metrics.failures.inc()
            logger.error("a partition is paused: nobody foresaw this", exc_info=error, extra=fields)

    def _halt(self, partition: int, halt: Halted) -> None:
        # Looked at again now and then: whoever repairs the log, or drops the cache, need not know of workers.
        self._retry_at[partition] = asyncio.get_running_loop().time() + HALTED_RETRY_S
        self._moved_at.pop(partition, None)
        self._halted.add(partition)
        self.metrics.halted.set(len(self._halted))
        logger.error(
            "a partition stands still: %s", halt.message, extra={"partition": partition, "code": halt.code}
        )
