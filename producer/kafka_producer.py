"""The client library's producer with the one thread that hears its answers.

Answers reach the event loop a batch at a time; nothing here decides what they mean.
"""

import asyncio
import logging
import threading
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaError, Message, Producer

from producer.kafka_options import is_fatal

__all__ = ["Answer", "PolledProducer", "Sent"]

logger = logging.getLogger("surfacelog.kafka")

# The thread looks this often whether it should end; answers wake it at once.
POLL_S = 0.2


class Sent:
    """A record that the library has. `done` runs in the poll thread."""

    __slots__ = ("_answers", "future", "size_bytes")

    def __init__(self, size_bytes: int, future: "asyncio.Future[int]", answers: list["Answer"]) -> None:
        self.size_bytes = size_bytes
        self.future = future
        self._answers = answers

    def done(self, error: KafkaError | None, message: Message) -> None:
        """The library's delivery report."""
        offset = message.offset()
        self._answers.append((self, error, -1 if offset is None else offset))


Answer = tuple[Sent, KafkaError | None, int]


class PolledProducer:
    """`settle` gets the answers, `down` is called when no broker answers, `dead` (with this producer) after an
    error from which the library cannot recover; all three in the event loop."""

    def __init__(
        self,
        options: dict[str, Any],
        settle: Callable[[list[Answer]], None],
        down: Callable[[], None],
        dead: Callable[["PolledProducer"], None],
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._settle, self._down, self._dead = settle, down, dead
        self._answers: list[Answer] = []
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
    ) -> Sent:
        """Queues a record; raises KafkaException or BufferError when it was not queued. Does not block."""
        sent = Sent(size_bytes, self._loop.create_future(), self._answers)
        self._producer.produce(topic, value, key, partition, on_delivery=sent.done, headers=headers or None)  # type: ignore[arg-type]
        return sent

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
            self._call(self._settle, answers)

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
