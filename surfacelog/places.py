"""Where each node of a surface stands: seqs in surface order, any of them found in O(log n).

Seqs are out of order where replaces happened, so each node has an anchor: a number that grows along the surface
and is never above the node's own seq. A node that was appended is its own anchor; one that replaces a range takes
over the range's first.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence

__all__ = ["Places"]


class Places:
    """`seqs`: in surface order; read only."""

    __slots__ = ("_anchors", "_moved", "_stale", "seqs")

    def __init__(self, seqs: Iterable[int] = ()) -> None:
        self.seqs: list[int] = list(seqs)
        self._anchors: list[int] = []
        # The anchors of those nodes that are not their own.
        self._moved: dict[int, int] = {}
        self._stale = True

    def find(self, seq: int) -> int:
        """The position of the node, or -1."""
        if self._stale:
            self._anchor()
        place = bisect_left(self._anchors, self._moved.get(seq, seq))
        return place if place < len(self.seqs) and self.seqs[place] == seq else -1

    def append(self, seq: int) -> None:
        """A node at the end, with the highest seq so far."""
        self.seqs.append(seq)
        if not self._stale:
            self._anchors.append(seq)

    def pop(self) -> None:
        """Takes back the append that was done last."""
        self.seqs.pop()
        if not self._stale:
            self._anchors.pop()

    def replace(self, position: int, count: int, seq: int) -> None:
        """`seq`, the highest so far, instead of the `count` > 0 nodes from `position` on."""
        if not self._stale:
            for old in self.seqs[position : position + count]:
                self._moved.pop(old, None)
            self._moved[seq] = self._anchors[position]
            del self._anchors[position + 1 : position + count]
        self.seqs[position : position + count] = (seq,)

    def put_back(self, position: int, seqs: Sequence[int]) -> None:
        """Takes back the replace at `position` that was done last: `seqs` stood there before. What comes back has
        lost its anchors; all are given anew when they are needed, once for all that is taken back."""
        self.seqs[position : position + 1] = seqs
        self._stale = True

    def _anchor(self) -> None:
        """Each node takes the highest anchor left to it. There is one: those that the history gave are lower."""
        anchors, moved = self.seqs.copy(), {}
        bound = anchors[-1] + 1 if anchors else 0
        for place in range(len(anchors) - 1, -1, -1):
            if anchors[place] >= bound:
                moved[anchors[place]] = anchors[place] = bound - 1
            bound = anchors[place]
        self._anchors, self._moved, self._stale = anchors, moved, False
