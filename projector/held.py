"""A session in a worker's memory: its state, and what the cache is known to hold of it."""

from collections import deque
from collections.abc import Sequence

import msgspec

from producer.checkpoint import DirEntry
from producer.state_reader import StateView
from surfacelog.keys import SessionKeys
from surfacelog.snapshot import meta_of, scalars_of
from surfacelog.state import Changes, SessionState

__all__ = [
    *("HEADERS", "KEYS", "MESSAGES", "OFFSETS", "RECENT", "SURFACE", "TAIL", "TOOLS", "TRANSCRIPT"),
    "Held",
    "NO_LENGTHS",
]

MESSAGES, SURFACE, TRANSCRIPT, TAIL, OFFSETS, RECENT, KEYS, HEADERS, TOOLS = range(9)
NO_LENGTHS = (0,) * 9


class Held:
    """`pointer`: `<content generation>:<nonce>` of the messages list. `lengths`: as `state_reader.LENGTHS`.
    `tail`: the lengths of the event lines in the tail. `message_bytes`: at least the size of all messages.
    `meta`: as it was written last. `tables`: a rough size of the tool tables, bytes."""

    __slots__ = (
        "digests",
        "entry",
        "lengths",
        "message_bytes",
        "meta",
        "own",
        "pointer",
        "state",
        "tables",
        "tail",
    )

    def __init__(self, own: SessionKeys, state: SessionState | None = None) -> None:
        self.own = own
        self.state = state or SessionState()
        self.state.changes = Changes()
        self.entry: DirEntry | None = None
        self.pointer = b""
        self.lengths: tuple[int, ...] = NO_LENGTHS
        self.tail: deque[int] = deque()
        self.message_bytes = 0
        self.digests: set[str] = set()
        self.tables = 0
        self.weigh_tables({table.digest for table in self.state.surface.headers.values()})
        self.meta: dict[bytes, bytes] = {}

    @classmethod
    def loaded(cls, own: SessionKeys, view: StateView) -> "Held":
        """What a whole view describes."""
        held = cls(own, view.state)
        held.entry = view.entry
        held.pointer = view.meta.get(b"mk", b"")
        held.lengths = view.lengths
        held.tail = deque(len(line) for line in view.tail)
        held.message_bytes = int(view.meta.get(b"bytes", b"0"))
        held.meta = dict(view.meta)
        return held

    @property
    def weight(self) -> int:
        """A rough size in memory, bytes."""
        state, surface = self.state, self.state.surface
        windows = 500 * (len(state.recent) + len(state.keys))
        return 6000 + 250 * len(surface.entries) + windows + 150 * len(surface.open_calls) + self.tables

    def weigh_tables(self, digests: set[str]) -> None:
        """`digests` name all tool tables that the state holds now."""
        self.digests = digests
        headers = self.state.surface.headers
        tables = {table.digest: table for table in headers.values()}.values()
        self.tables = 150 * len(headers) + sum(300 + 150 * len(table.tools) for table in tables)

    def fields(self, pointer: bytes, lengths: Sequence[int], message_bytes: int) -> dict[bytes, bytes]:
        """The `meta` hash; where it was written before, without the header, which never changes."""
        found = scalars_of(self.state) if self.meta else meta_of(self.state)
        found[b"mk"] = pointer
        found[b"sizes"] = msgspec.json.encode(lengths)
        found[b"bytes"] = b"%d" % message_bytes
        return found
