"""The log's SQLite file and the one thread that touches it.

Group commit: all writes that wait when the thread looks become one transaction, so that an fsync is shared.
An acknowledged write has been fsynced (WAL, synchronous=FULL).
"""

import asyncio
import logging
import queue
import sqlite3
import threading
import time
import uuid
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from producer.log import LogRecord, ProduceUnknown, Unavailable
from surfacelog.errors import ProtocolError

__all__ = ["Outcome", "SqliteStore", "Write", "read_rows", "read_start"]

logger = logging.getLogger("surfacelog.sqlite")

FORMAT = 1
# A place is partition << 48 | offset: one integer key keeps the table a single tree in log order.
PLACE_BITS = 48
# Bounds one transaction, so that the first of many waiting writes is not kept for the last one.
WRITES_MAX = 2_000
_SCHEMA = """
CREATE TABLE IF NOT EXISTS facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS records (
  place INTEGER PRIMARY KEY, key BLOB, headers BLOB NOT NULL, value BLOB, time INTEGER NOT NULL);
CREATE VIEW IF NOT EXISTS log AS SELECT place >> 48 AS partition, place & 0xFFFFFFFFFFFF AS offset, key, headers,
  value, time FROM records;
"""
_headers = msgspec.msgpack.Decoder(list[tuple[str, bytes]])
Outcome = tuple["asyncio.Future[Any]", Any, BaseException | None]
Settle = Callable[[list[tuple[int, int]], list[Outcome]], None]


class Write:
    """A record that waits to be written. `withdrawn` may be set until the thread has `taken` it."""

    __slots__ = ("future", "row", "taken", "withdrawn")

    def __init__(
        self, partition: int, key: bytes, headers: Sequence[tuple[str, bytes]], value: bytes, future: Any
    ) -> None:
        self.row = (partition, key, msgspec.msgpack.encode(list(headers)), value)
        self.future: asyncio.Future[int] = future
        self.taken = False
        self.withdrawn = False


Job = Write | tuple[Callable[[sqlite3.Connection], Any], Any] | None


class SqliteStore:
    """Opens or makes the file. `settle` is called in the loop with what a turn of the thread has brought: the
    (partition, end) that moved, and the outcomes of futures. Raises ProtocolError `misconfigured` when the file is
    another topic's, has another number of partitions, or is of a newer format."""

    def __init__(self, path: Path, topic: str, partitions: int | None) -> None:
        # Built in one thread and used in another, never in two at once.
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        try:
            for pragma in ("journal_mode=WAL", "synchronous=FULL", "fullfsync=ON", "busy_timeout=5000"):
                self._db.execute(f"PRAGMA {pragma}")
            facts = self._facts(topic, partitions or 8)
            self.partitions = int(facts["partitions"])
            self.topic_id = facts["topic_id"]
            if facts["topic"] != topic:
                raise ProtocolError("misconfigured", f"{path} holds topic {facts['topic']}, not {topic}")
            if partitions is not None and self.partitions != partitions:
                raise ProtocolError("misconfigured", f"{path} has {self.partitions} partitions, not {partitions}")
            self.ends = self._ends()
        except BaseException as error:
            self._db.close()
            if isinstance(error, sqlite3.Error):
                raise ProtocolError("misconfigured", f"{path} cannot be used: {error}") from None
            raise
        self._next = list(self.ends)
        self._jobs: queue.SimpleQueue[Job] = queue.SimpleQueue()
        self._guard = threading.Lock()
        self._thread = threading.Thread(target=self._run, name="surfacelog-sqlite", daemon=True)

    def _facts(self, topic: str, partitions: int) -> dict[str, str]:
        self._db.execute("BEGIN IMMEDIATE")
        for statement in _SCHEMA.split(";"):
            self._db.execute(statement)
        made = {"format": str(FORMAT), "topic": topic, "topic_id": uuid.uuid4().hex, "partitions": str(partitions)}
        if not self._db.execute("SELECT 1 FROM facts").fetchone():
            self._db.executemany("INSERT INTO facts VALUES (?, ?)", made.items())
        self._db.execute("COMMIT")
        facts = dict(self._db.execute("SELECT name, value FROM facts").fetchall())
        if int(facts["format"]) != FORMAT:
            raise ProtocolError("misconfigured", f"the log file has format {facts['format']}; upgrade to read it")
        return facts

    def _ends(self) -> list[int]:
        ends = []
        for partition in range(self.partitions):
            low = partition << PLACE_BITS
            row = self._db.execute(
                "SELECT max(place) FROM records WHERE place >= ? AND place < ?", (low, low + (1 << PLACE_BITS))
            ).fetchone()
            ends.append(0 if row[0] is None else row[0] - low + 1)
        return ends

    def start(self, loop: asyncio.AbstractEventLoop, settle: Settle) -> None:
        """Begins to work; `settle` runs in `loop`."""
        self._loop, self._settle = loop, settle
        self._thread.start()

    def put(self, write: Write) -> None:
        """Queues a write; writes keep their order."""
        self._jobs.put(write)

    def ask(self, question: Callable[[sqlite3.Connection], Any]) -> "asyncio.Future[Any]":
        """Runs a reading function on the connection, after the writes that were queued before it."""
        future: asyncio.Future[Any] = self._loop.create_future()
        self._jobs.put((question, future))
        return future

    def withdraw(self, write: Write) -> bool:
        """Takes a waiting write back; False when the thread has it already."""
        with self._guard:
            write.withdrawn = not write.taken
            return write.withdrawn

    def stop(self) -> None:
        """Writes what is queued, then closes the file. Blocks."""
        self._jobs.put(None)
        self._thread.join()

    def _run(self) -> None:
        stopping = False
        while not stopping:
            jobs = [self._jobs.get()]
            while len(jobs) < WRITES_MAX and not self._jobs.empty():
                jobs.append(self._jobs.get())
            stopping = None in jobs
            outcomes: list[Outcome] = []
            moved = self._commit([job for job in jobs if isinstance(job, Write)], outcomes)
            for job in jobs:
                if isinstance(job, tuple):
                    outcomes.append(self._answer(*job))
            self._tell(moved, outcomes)
        self._db.close()

    def _tell(self, moved: list[tuple[int, int]], outcomes: list[Outcome]) -> None:
        try:
            self._loop.call_soon_threadsafe(self._settle, moved, outcomes)
        except RuntimeError:
            # The loop was closed with work in flight: nobody is left to tell.
            return

    def _answer(self, question: Callable[[sqlite3.Connection], Any], future: "asyncio.Future[Any]") -> Outcome:
        try:
            return future, question(self._db), None
        except sqlite3.Error as error:
            return future, None, Unavailable(f"the log file cannot be read: {error}")

    def _commit(self, writes: list[Write], outcomes: list[Outcome]) -> list[tuple[int, int]]:
        with self._guard:
            writes = [write for write in writes if not write.withdrawn]
            for write in writes:
                write.taken = True
        if not writes:
            return []
        ends = list(self._next)
        rows, offsets, now = [], [], time.time_ns() // 1_000_000
        for write in writes:
            partition, key, headers, value = write.row
            rows.append((partition << PLACE_BITS | ends[partition], key, headers, value, now))
            offsets.append(ends[partition])
            ends[partition] += 1
        error = self._transact(rows)
        if error is not None:
            outcomes.extend((write.future, None, error) for write in writes)
            return []
        outcomes.extend((write.future, offset, None) for write, offset in zip(writes, offsets, strict=True))
        self._next = ends
        return [(partition, ends[partition]) for partition in {write.row[0] for write in writes}]

    def _transact(self, rows: list[tuple[int, bytes, bytes, bytes, int]]) -> Exception | None:
        try:
            self._db.execute("BEGIN IMMEDIATE")
            self._db.executemany("INSERT INTO records VALUES (?, ?, ?, ?, ?)", rows)
        except sqlite3.Error as error:
            self._roll_back()
            logger.error("the log file cannot be written: %s", error)
            return Unavailable(f"the log file cannot be written: {error}")
        try:
            self._db.execute("COMMIT")
        except sqlite3.Error as error:
            # The WAL frames may be on the disk or not; a restart would decide. So ask the file what it has.
            self._roll_back()
            logger.error("the log file does not take a commit: %s", error)
            try:
                self._next = self._ends()
            except sqlite3.Error:
                self._next = list(self._next)
            return ProduceUnknown(f"the log file did not say whether it took the records: {error}")
        return None

    def _roll_back(self) -> None:
        if self._db.in_transaction:
            try:
                self._db.execute("ROLLBACK")
            except sqlite3.Error:
                return


def read_rows(
    db: sqlite3.Connection, partition: int, offset: int, records_max: int, bytes_max: int
) -> list[LogRecord]:
    """Records of a partition from `offset` on, in order; at least one unless there is none."""
    low = partition << PLACE_BITS
    found: list[LogRecord] = []
    rows = db.execute(
        "SELECT place, key, headers, value, time FROM records WHERE place >= ? AND place < ?"
        " ORDER BY place LIMIT ?",
        (low + offset, low + (1 << PLACE_BITS), max(records_max, 1)),
    )
    for place, key, headers, value, when in rows:
        found.append(LogRecord(partition, place - low, key, _headers.decode(headers), value, when))
        bytes_max -= len(value or b"")
        if bytes_max <= 0:
            break
    rows.close()
    return found


def read_start(db: sqlite3.Connection, partition: int) -> int | None:
    """The first offset still there, or None when there is no record."""
    low = partition << PLACE_BITS
    row = db.execute(
        "SELECT min(place) FROM records WHERE place >= ? AND place < ?", (low, low + (1 << PLACE_BITS))
    ).fetchone()
    return None if row[0] is None else int(row[0]) - low
