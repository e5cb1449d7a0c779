"""Events of one session straight from the log, through the places of their commits: no scan, bounded memory."""

from collections.abc import AsyncIterator, Sequence

from producer.log import EventLog, LogRecord
from surfacelog.entries import Place
from surfacelog.errors import ProtocolError
from surfacelog.events import read_lines
from surfacelog.records import read_record

__all__ = ["read_commits"]

# Reading through neighbours' records is cheaper than a new seek up to about this distance.
GAP_RECORDS_MAX = 200
WINDOW_RECORDS_MAX = 400
# Records may be large: the first read is small, and later ones as large as their sizes so far allow.
FIRST_RECORDS = 8
WINDOW_BYTES = 2 << 20
READ_TIMEOUT_MS = 5000


async def read_commits(
    log: EventLog, partition: int, key: bytes, places: Sequence[Place]
) -> AsyncIterator[tuple[int, list[bytes]]]:
    """(first seq, event lines) of each commit, in order. Raises Unavailable, or `log-truncated` when the log does
    not hold one of them any more, or another record in its place."""
    at = 0
    ahead = FIRST_RECORDS
    while at < len(places):
        window = _window(places, at)
        wanted = {offset: seq for seq, offset in window}
        start, stop = window[0][1], window[-1][1] + 1
        while start < stop:
            # The log may answer with fewer records than asked for, but never with none while there are some.
            records = await log.read(partition, start, min(stop - start, ahead), READ_TIMEOUT_MS)
            if not records or records[0].offset >= stop:
                raise _truncated(window[0][0])
            for record in records:
                seq = wanted.pop(record.offset, None)
                if seq is not None:
                    yield seq, _lines(record, key, seq)
            size = sum(len(record.value or b"") for record in records)
            ahead = max(1, min(4 * ahead, WINDOW_BYTES * len(records) // max(size, 1)))
            start = records[-1].offset + 1
        if wanted:
            raise _truncated(min(wanted.values()))
        at += len(window)


def _window(places: Sequence[Place], at: int) -> Sequence[Place]:
    """The commits from `at` on that one reading through brings."""
    end = at + 1
    while (
        end < len(places)
        and places[end][1] - places[end - 1][1] <= GAP_RECORDS_MAX
        and places[end][1] - places[at][1] < WINDOW_RECORDS_MAX
    ):
        end += 1
    return places[at:end]


def _lines(found: LogRecord, key: bytes, seq: int) -> list[bytes]:
    record = read_record(found.headers, found.value)
    if found.key != key or record is None or record.kind != "commit" or record.seq != seq:
        raise _truncated(seq)
    return read_lines(record.value)


def _truncated(seq: int) -> ProtocolError:
    return ProtocolError("log-truncated", f"the log no longer holds the events from seq {seq} on", seq=seq)
