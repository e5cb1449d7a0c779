"""The client library's producer with the one thread that hears its answers.

Answers reach the event loop a batch at a time; nothing here decides what they mean. While a partition has records
on their way, those that come meanwhile are held, and follow together: a record that comes alone waits for nothing,
and many that come at once cost the broker a request, not one each.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from producer.kafka_options import is_fatal
from producer.log import Told

__all__ = ["Answer", "PolledProducer", "Sent"]

logger = logging.getLogger("surfacelog.kafka")

# The thread looks this often whether it should end; answers wake it at once.
POLL_S = 0.2


class Sent:
    """A record that the library has, or will be given. `done` runs in the poll thread."""

    __slots__ = ("_answers", "partition", "size_bytes", "told")

    def __init__(self, partition: int, size_bytes: int, told: Told, answers: list["Answer"]) -> None:
        self.partition = partition
        self.size_bytes = size_bytes
        self.told = told
        self._answers = answers

    def done(self, error: KafkaError | None, message: Message) -> None:
        """The library's delivery report."""
        offset = message.offset()
        self._answers.append((self, error, -1 if offset is None else offset))


Answer = tuple[Sent, KafkaError | None, int]
Refused = Callable[[Sent, Exception], None]
# What the library is told of a record: the topic, its value, key, partition and headers.
Words = tuple[str, bytes, bytes, int, list[tuple[str, bytes]] | None]


class PolledProducer:
    """`settle` gets the answers, `refused` a record that was held and that the library did not take then, with
    what `send` would raise; `down` is called when no broker answers, `dead` (with this producer) after an error
    from which the library cannot recover; all in the event loop."""

    def __init__(
        self,
        options: dict[str, Any],
        settle: Callable[[list[Answer]], None],
        refused: Refused,
        down: Callable[[], None],
        dead: Callable[["PolledProducer"], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settle, self._refused, self._down, self._dead = settle, refused, down, dead
        self._answers: list[Answer] = []
        # By partition: how many the library has, and what is held until it has none.
        self._away: dict[int, int] = {}
        self._held: dict[int, list[tuple[Sent, Words]]] = {}
        self._bursting: set[int] = set()
        self._ending = False
        self._producer = Producer({**options, "error_cb": self._heard})
        self._thread = threading.Thread(target=self._poll, name="surfacelog-produce", daemon=True)
        self._thread.start()

    def send(
        self,
        topic: str,
        partition: int,
        key: bytes,
        headers: list[tuple[str, bytes]],
        value: bytes,
        size_bytes: int,
        told: Told,
    ) -> None:
        """Queues a record, or holds it. Raises KafkaException, BufferError or, for words that are none, TypeError
        when it was not queued; of a record that is held `refused` tells. Does not block. Records of one partition
        keep their order."""
        sent = Sent(partition, size_bytes, told, self._answers)
        words: Words = (topic, value, key, partition, headers or None)
        away = self._away.get(partition)
        if not away and partition not in self._bursting:
            self._produce(sent, words)
            self._away[partition] = 1
            return
        held = self._held.get(partition)
        if held is None:
            held = self._held[partition] = []
            if not away:
                # Where many came together the last time, the rest of this turn is likely to bring more.
                self._loop.call_soon(self._turned, partition)
        held.append((sent, words))

    def _turned(self, partition: int) -> None:
        if partition in self._held and not self._away.get(partition):
            self._release(partition)

    def _produce(self, sent: Sent, words: Words) -> None:
        topic, value, key, partition, headers = words
        self._producer.produce(topic, value, key, partition, on_delivery=sent.done, headers=headers)  # type: ignore[arg-type]

    def _answered(self, answers: list[Answer]) -> None:
        away = self._away
        for sent, _, _ in answers:
            away[sent.partition] -= 1
        # The broker has work again before anybody here looks at what it did.
        for partition in self._held.keys() & {sent.partition for sent, _, _ in answers}:
            if not away[partition]:
                self._release(partition)
        self._settle(answers)

    def _release(self, partition: int) -> None:
        held, away = self._held.pop(partition), self._away.get(partition, 0)
        for sent, words in held:
            try:
                self._produce(sent, words)
            except Exception as error:
                # Whatever is wrong with one must not keep those behind it here for ever.
                self._refused(sent, error)
            else:
                away += 1
        self._away[partition] = away
        if len(held) > 1:
            self._bursting.add(partition)
        else:
            self._bursting.discard(partition)

    def _poll(self) -> None:
        while not self._ending:
            try:
                self._producer.poll(POLL_S)
            except Exception:
                logger.exception("the producer's poll failed")
            self._hand_over()

    def _hand_over(self) -> None:
        answers = self._answers[:]
        del self._answers[: len(answers)]
        if answers:
            self._call(self._answered, answers)

    def _call(self, function: Callable[..., object], *args: Any) -> None:
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop is closed: nobody is left to tell.
            return

    def _heard(self, error: KafkaError) -> None:
        if is_fatal(error):
            logger.error("the producer cannot go on: %s", error.str())
            self._call(self._dead, self)
        elif error.name() == "_ALL_BROKERS_DOWN":
            self._call(self._down)

    async def close(self, timeout_ms: int) -> None:
        """Waits for what is in flight, at most so long; then gives up on the rest, whose fate is told like any."""
        for partition in list(self._held):
            self._release(partition)
        await self._loop.run_in_executor(None, self._end, timeout_ms / 1000)
        # One turn of the loop, so that the last answers are settled.
        await asyncio.sleep(0)

    def _end(self, timeout_s: float) -> None:
        self._producer.flush(timeout_s)
        self._ending = True
        self._thread.join()
        if len(self._producer):
            self._producer.purge()
            self._producer.flush(1.0)
        self._hand_over()
