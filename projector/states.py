"""The session states that a worker keeps in memory, the least recently used dropped first."""

import asyncio
from collections import OrderedDict

from projector.held import Held

__all__ = ["States"]


class States:
    """Shared by all partitions of a worker; `turn` is held by the one that folds. Bounded by `count_max` and by
    `bytes_max`, the sum of rough weights; `trim` keeps to the bounds, so that nothing goes in the middle of a
    batch."""

    def __init__(self, count_max: int, bytes_max: int) -> None:
        self._count_max = count_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self.turn = asyncio.Lock()
        self._held: OrderedDict[tuple[int, bytes], tuple[Held, int]] = OrderedDict()

    def __len__(self) -> int:
        return len(self._held)

    def get(self, partition: int, session: bytes) -> Held | None:
        """The session's state if it is held."""
        found = self._held.get((partition, session))
        return None if found is None else found[0]

    def put(self, partition: int, session: bytes, held: Held) -> None:
        """Keeps a state as the one used last, with its present weight."""
        name, weight = (partition, session), held.weight
        found = self._held.get(name)
        self._held[name] = (held, weight)
        if found is None:
            self._bytes += weight
        else:
            self._held.move_to_end(name)
            self._bytes += weight - found[1]

    def drop(self, partition: int, session: bytes) -> None:
        """Forgets one state."""
        found = self._held.pop((partition, session), None)
        if found is not None:
            self._bytes -= found[1]

    def drop_partition(self, partition: int) -> None:
        """Forgets all states of a partition."""
        for place, session in [name for name in self._held if name[0] == partition]:
            self.drop(place, session)

    def trim(self) -> None:
        """Forgets what is over the bounds."""
        while self._held and (len(self._held) > self._count_max or self._bytes > self._bytes_max):
            _, (_, weight) = self._held.popitem(last=False)
            self._bytes -= weight
