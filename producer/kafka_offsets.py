"""Where partitions end or start: one shared ListOffsets for everybody who asks at the same time.

Fresh by construction: an answer comes from a request that was sent after the question was asked.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from producer.log import Unavailable

__all__ = ["END", "START", "KafkaOffsets"]

# Kafka's own names for "the offset after the last record" and "the first offset" in a ListOffsets request.
END = -1
START = -2
# One request waits no longer, so that a partition without a leader delays others only so much.
REQUEST_MS_MAX = 1_000
RETRY_MS = 20


class _Question:
    __slots__ = ("deadline", "future", "partitions")

    def __init__(
        self, partitions: frozenset[int], deadline: float, future: "asyncio.Future[dict[int, int]]"
    ) -> None:
        self.partitions = partitions
        self.deadline = deadline
        self.future = future


class KafkaOffsets:
    """Answers `ask` for one kind of offset, END or START, with a client and a thread of its own."""

    def __init__(self, options: dict[str, Any], topic: str, kind: int) -> None:
        self._consumer = Consumer({**options, "group.id": "surfacelog-offsets", "enable.auto.commit": False})
        self._topic = topic
        self._kind = kind
        self._thread = ThreadPoolExecutor(1, "surfacelog-offsets")
        self._waiting: list[_Question] = []
        self._asking: asyncio.Task[None] | None = None

    async def ask(self, partitions: Sequence[int], timeout_ms: int) -> dict[int, int]:
        """Partition -> offset; raises Unavailable."""
        if not partitions:
            return {}
        loop = asyncio.get_running_loop()
        future: asyncio.Future[dict[int, int]] = loop.create_future()
        deadline = loop.time() + timeout_ms / 1000
        self._waiting.append(_Question(frozenset(partitions), deadline, future))
        if self._asking is None or self._asking.done():
            self._asking = loop.create_task(self._work())
        try:
            async with asyncio.timeout_at(deadline):
                return await future
        except TimeoutError:
            raise Unavailable("the log did not tell its offsets in time") from None

    async def _work(self) -> None:
        loop = asyncio.get_running_loop()
        while self._waiting:
            questions = [question for question in self._waiting if not question.future.done()]
            self._waiting = []
            if not questions:
                return
            wanted = sorted(frozenset().union(*(question.partitions for question in questions)))
            left_ms = (max(question.deadline for question in questions) - loop.time()) * 1000
            timeout_s = max(0.01, min(left_ms, REQUEST_MS_MAX) / 1000)
            found = await loop.run_in_executor(self._thread, self._list, wanted, timeout_s)
            self._answer(questions, found)
            if len(found) < len(wanted):
                await asyncio.sleep(RETRY_MS / 1000)

    def _answer(self, questions: list[_Question], found: dict[int, int]) -> None:
        for question in questions:
            if question.future.done():
                continue
            if question.partitions <= found.keys():
                question.future.set_result({partition: found[partition] for partition in question.partitions})
            else:
                self._waiting.append(question)

    def _list(self, partitions: list[int], timeout_s: float) -> dict[int, int]:
        """What could be found; blocks. Asked one by one when they cannot be had together."""
        try:
            return self._request(partitions, timeout_s)
        except KafkaException:
            found: dict[int, int] = {}
            for partition in partitions if len(partitions) > 1 else ():
                try:
                    found.update(self._request([partition], 0.05))
                except KafkaException:
                    continue
            return found

    def _request(self, partitions: list[int], timeout_s: float) -> dict[int, int]:
        asked = [TopicPartition(self._topic, partition, self._kind) for partition in partitions]
        answers = self._consumer.offsets_for_times(asked, timeout=timeout_s)
        return {
            answer.partition: answer.offset for answer in answers if answer.error is None and answer.offset >= 0
        }

    async def close(self) -> None:
        """Ends; questions that wait are answered with Unavailable by their own deadlines."""
        if self._asking is not None and not self._asking.done():
            self._asking.cancel()
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._consumer.close)
        self._thread.shutdown(wait=False)
