"""What a producer hears: verdicts on its commits from the projector, and from others that they wait for a lock.

A message may be lost at any time, so hearing is only the fast way; whoever waits also polls.
"""

import asyncio
from collections.abc import Callable, Sequence

import msgspec

from producer.cache import LISTENING, Cache, CacheUnavailable
from producer.endings import end_tasks
from surfacelog.verdict import Verdict

__all__ = ["Verdicts"]

_verdicts = msgspec.json.Decoder(list[Verdict])
PAUSE_S = 0.1


class Verdicts:
    """`verdicts`: the channels of every partition for this producer. `wanted`: those on which it is told that
    somebody waits for a session's lock; `want` is called with the session's key. Nothing is kept for ids that
    nobody waits for."""

    def __init__(
        self, cache: Cache, verdicts: Sequence[bytes], wanted: Sequence[bytes], want: Callable[[bytes], None]
    ) -> None:
        self._cache = cache
        self._channels = [*verdicts, *wanted]
        self._wanted = frozenset(wanted)
        self._want = want
        self._waiting: dict[str, Callable[[Verdict], None]] = {}
        self._listening = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    def expect(self, record_id: str, told: Callable[[Verdict], None]) -> None:
        """Calls `told` once with the verdict on `record_id`."""
        self._waiting[record_id] = told

    def forget(self, record_id: str) -> None:
        """Nobody waits for it any more."""
        self._waiting.pop(record_id, None)

    def tell(self, verdict: Verdict) -> None:
        """Hands a verdict, heard or read, to whoever waits for it."""
        told = self._waiting.pop(verdict.id, None)
        if told is not None:
            told(verdict)

    async def start(self, wait_s: float) -> None:
        """Begins to listen; goes on without after `wait_s`, because polling does the same, later."""
        self._task = asyncio.get_running_loop().create_task(self._hear(), name="verdicts")
        try:
            await asyncio.wait_for(self._listening.wait(), wait_s)
        except TimeoutError:
            return

    async def close(self) -> None:
        """Stops listening."""
        if self._task is not None:
            await end_tasks([self._task])
            self._task = None

    async def _hear(self) -> None:
        while True:
            try:
                async for message in self._cache.listen(self._channels):
                    if message == LISTENING:
                        self._listening.set()
                    elif message[0] in self._wanted:
                        self._want(message[1])
                    else:
                        for verdict in _read(message[1]):
                            self.tell(verdict)
            except CacheUnavailable:
                pass
            await asyncio.sleep(PAUSE_S)


def _read(payload: bytes) -> list[Verdict]:
    try:
        return _verdicts.decode(payload)
    except (msgspec.MsgspecError, ValueError):
        # A stranger's message is a message lost.
        return []
