"""The records of one partition folded since the last commit. No I/O: `take` decides, the commit writes."""

from collections import defaultdict

import msgspec

from producer.checkpoint import DirEntry
from producer.log import LogRecord
from projector.held import Held
from projector.trouble import Fault, Halted
from surfacelog.accept import accept
from surfacelog.errors import LedgerError, ProtocolError
from surfacelog.keys import session_of
from surfacelog.records import Record, read_record

__all__ = ["DeadLetter", "Fold", "commit_id", "is_ours", "verdict_payload"]

# What one touched session adds to a call, and one event or record of it: only to know when to cut.
SESSION_VALUES = 34
NEW_SESSION_VALUES = 70
EVENT_VALUES = 5
RECORD_BYTES = 140
SESSION_BYTES = 3000
# Keys that a call names for one session (for a parked one it is one), and how many it may name: the server looks
# every one of them up.
SESSION_KEYS = 12
KEYS_MAX = 900
DEAD_BYTES_MAX = 4096


class DeadLetter(msgspec.Struct, frozen=True, omit_defaults=True):
    """A copy of a record that could not be read, cut to a bound, in base64 where it is bytes. It only informs."""

    offset: int
    time: int
    key: bytes
    headers: list[tuple[str, bytes]]
    value: bytes
    message: str = ""


class Fold:
    """`touched`: sessions with a record here. `moved`: those of them with an accepted record. `parked`: offsets of
    records of parked sessions, which are left alone."""

    def __init__(self) -> None:
        self.touched: dict[bytes, Held] = {}
        self.moved: set[bytes] = set()
        self.parked: dict[bytes, tuple[DirEntry, list[int]]] = {}
        self.verdicts: dict[str, list[bytes]] = defaultdict(list)
        self.codes: dict[tuple[str, str], int] = defaultdict(int)
        self.dead: list[bytes] = []
        self.records = 0
        self.values = 0
        self.size_bytes = 0
        self.last = -1
        self.commit = ""
        self.time_ms = 0

    def take(self, record: LogRecord, held: Held | None) -> None:
        """Folds one record; `held` is None when its key is not one of ours. Raises Fault (nothing can be said of
        this fold any more) or Halted."""
        if record.key is None:
            raise Halted("malformed", f"the record at offset {record.offset} has no key; no session can be told")
        read = read_record(record.headers, record.value)
        if held is None:
            self.codes["rejected", "malformed"] += 1
            self._bury(record, "the key names no session")
        elif held.entry is not None and held.entry.status == "faulted":
            self.parked.setdefault(record.key, (held.entry, []))[1].append(record.offset)
        else:
            self._accept(record, read, held)
        self.records += 1
        self.last = record.offset
        self.commit = _id(read)
        self.time_ms = record.time

    def is_full(self, values_max: int, size_bytes_max: int) -> bool:
        """Whether one more record, of the size that they have here, would be too much for a call."""
        share = 1 + 1 / max(self.records, 1)
        return (
            self.values * share >= values_max
            or self.size_bytes * share >= size_bytes_max
            or (len(self.touched) + 1) * SESSION_KEYS + len(self.parked) > KEYS_MAX
        )

    def _accept(self, record: LogRecord, read: Record | None, held: Held) -> None:
        assert record.key is not None
        try:
            verdict = accept(held.state, read, record.offset)
        except LedgerError as error:
            raise Fault(record.key, record.offset, error.code, _id(read)) from error
        except Exception as error:
            raise Fault(record.key, record.offset, "faulted", _id(read)) from error
        self.codes[verdict.outcome, verdict.code] += 1
        if verdict.code == "malformed":
            self._bury(record, verdict.message)
        if read is not None and read.reply:
            try:
                self.verdicts[read.reply].append(msgspec.json.encode(verdict.told()))
            except Exception as error:
                raise Fault(record.key, record.offset, "faulted", _id(read)) from error
        if record.key not in self.touched:
            self.touched[record.key] = held
            self.values += SESSION_VALUES if held.entry is not None else NEW_SESSION_VALUES
            self.size_bytes += SESSION_BYTES
        if verdict.outcome == "accepted":
            self.moved.add(record.key)
            self.values += EVENT_VALUES * len(verdict.plans)
        self.size_bytes += len(record.value or b"") + RECORD_BYTES

    def _bury(self, record: LogRecord, message: str) -> None:
        headers = [(name, (value or b"")[:256]) for name, value in record.headers[:16]]
        value = (record.value or b"")[:DEAD_BYTES_MAX]
        letter = DeadLetter(record.offset, record.time, record.key or b"", headers, value, message)
        try:
            self.dead.append(msgspec.json.encode(letter))
        except (ValueError, OverflowError):
            # Names or words that are no text. It only informs, so it must stop nothing.
            self.dead.append(msgspec.json.encode(msgspec.structs.replace(letter, headers=[], message="")))


def commit_id(record: LogRecord) -> str:
    """The id by which a record is known again; empty when it cannot be read."""
    return _id(read_record(record.headers, record.value))


def is_ours(key: bytes) -> bool:
    """Whether a record key names a session."""
    try:
        session_of(key)
    except ProtocolError:
        return False
    return True


def _id(read: Record | None) -> str:
    return "" if read is None else read.id


def verdict_payload(verdicts: list[bytes]) -> bytes:
    """Encoded verdicts as one message to the producer that waits for them."""
    return b"[%s]" % b",".join(verdicts)
