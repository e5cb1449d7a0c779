"""Where partitions end or start: one shared ListOffsets for everybody who asks at the same time.

Fresh by construction: an answer comes from a request that was sent after the question was asked. Each leader has a
lane of its own, so that a broker that does not answer holds up only the partitions that it leads.
"""

import asyncio
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from producer.log import Unavailable

__all__ = ["END", "START", "KafkaOffsets"]

# Kafka's own names for "the offset after the last record" and "the first offset" in a ListOffsets request.
END = -1
START = -2
# One request waits no longer; then the leaders are looked up anew.
REQUEST_S_MAX = 1.0
RETRY_S = 0.02
NO_LEADER = -1


class _Question:
    """What somebody wants to know; complete when `found` has all of `partitions`."""

    __slots__ = ("deadline", "found", "future", "kind", "partitions")

    def __init__(self, kind: int, partitions: frozenset[int], deadline: float) -> None:
        self.kind = kind
        self.partitions = partitions
        self.deadline = deadline
        self.found: dict[int, int] = {}
        self.future: asyncio.Future[dict[int, int]] = asyncio.get_running_loop().create_future()

    def learn(self, found: dict[int, int]) -> None:
        """Takes what concerns it."""
        self.found.update(found)
        if len(self.found) == len(self.partitions) and not self.future.done():
            self.future.set_result(self.found)


class _Lane:
    """Questions to one leader: while one request is out, the next one's questions gather."""

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "surfacelog-offsets")
        self.waiting: list[tuple[_Question, frozenset[int]]] = []
        self.work: asyncio.Task[None] | None = None


class KafkaOffsets:
    """Asks with a client of its own. `leaders` are looked up when an answer does not come."""

    def __init__(self, options: dict[str, Any], topic: str) -> None:
        self._consumer = Consumer({**options, "group.id": "surfacelog-offsets", "enable.auto.commit": False})
        self._topic = topic
        self._leaders: dict[int, int] = {}
        self._lanes: dict[int, _Lane] = {}
        self._closed = False

    async def ask(self, kind: int, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        """Partition -> its END or START; raises Unavailable."""
        if self._closed:
            raise Unavailable("the log is closed")
        if not partitions:
            return {}
        deadline = asyncio.get_running_loop().time() + timeout_ms / 1000
        question = _Question(kind, frozenset(partitions), deadline)
        self._put(question, question.partitions)
        try:
            async with asyncio.timeout_at(deadline):
                return await question.future
        except TimeoutError:
            raise Unavailable("the log did not tell its offsets in time") from None

    def _put(self, question: _Question, partitions: Iterable[int]) -> None:
        groups: dict[int, set[int]] = {}
        for partition in partitions:
            groups.setdefault(self._leaders.get(partition, NO_LEADER), set()).add(partition)
        for leader, group in groups.items():
            lane = self._lanes.setdefault(leader, _Lane())
            lane.waiting.append((question, frozenset(group)))
            if lane.work is None or lane.work.done():
                # A task begins in the next turn of the loop: all who ask in this one share its first request.
                lane.work = asyncio.get_running_loop().create_task(self._work(lane))

    async def _work(self, lane: _Lane) -> None:
        loop = asyncio.get_running_loop()
        while lane.waiting:
            asked = [(question, group) for question, group in lane.waiting if not question.future.done()]
            lane.waiting = []
            missing = False
            for kind in sorted({question.kind for question, _ in asked}):
                mine = [(question, group) for question, group in asked if question.kind == kind]
                wanted = sorted(frozenset().union(*(group for _, group in mine)))
                left_s = max(question.deadline for question, _ in mine) - loop.time()
                timeout_s = max(0.05, min(left_s, REQUEST_S_MAX))
                found = await loop.run_in_executor(lane.thread, self._list, kind, wanted, timeout_s)
                for question, group in mine:
                    question.learn({partition: found[partition] for partition in group & found.keys()})
                missing = missing or len(found) < len(wanted)
            if missing:
                await self._look_again(lane, asked)

    async def _look_again(self, lane: _Lane, asked: list[tuple[_Question, frozenset[int]]]) -> None:
        await asyncio.sleep(RETRY_S)
        loop = asyncio.get_running_loop()
        self._leaders.update(await loop.run_in_executor(lane.thread, self._look_up_leaders))
        for question, group in asked:
            if not question.future.done():
                self._put(question, group - question.found.keys())

    # The rest runs in the threads, and blocks.

    def _list(self, kind: int, partitions: list[int], timeout_s: float) -> dict[int, int]:
        asked = [TopicPartition(self._topic, partition, kind) for partition in partitions]
        try:
            answers = self._consumer.offsets_for_times(asked, timeout=timeout_s)
        except KafkaException:
            return {}
        return {
            answer.partition: answer.offset for answer in answers if answer.error is None and answer.offset >= 0
        }

    def _look_up_leaders(self) -> dict[int, int]:
        # Asking is what counts: the library sends questions to the leader that it knew until it is asked to look.
        try:
            topics = self._consumer.list_topics(self._topic, timeout=REQUEST_S_MAX).topics
        except KafkaException:
            return {}
        found = topics.get(self._topic)
        return {} if found is None else {number: part.leader for number, part in found.partitions.items()}

    async def close(self) -> None:
        """Ends; whoever still waits hears of it by his own deadline."""
        if self._closed:
            return
        self._closed = True
        lanes = list(self._lanes.values())
        for lane in lanes:
            if lane.work is not None:
                lane.work.cancel()
        loop = asyncio.get_running_loop()
        for lane in lanes:
            # Not before the request that is out is done: the client must not be closed under it.
            await loop.run_in_executor(lane.thread, _nothing)
            lane.thread.shutdown(wait=False)
        await loop.run_in_executor(None, self._consumer.close)


def _nothing() -> None:
    """The last job of a thread."""
