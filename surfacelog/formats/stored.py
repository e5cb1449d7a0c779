"""Stored session logs: `.jsonl`, plain or in zstd frames, of format 4 or 0, as a header and events.

What a crash tore off at the end is left out and reported; damage with anything good behind it is refused with
its row number. Rows are counted from 0, the header's own row included. Nothing is written or deleted.
"""

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from surfacelog.errors import ContractError, LedgerError, ProtocolError
from surfacelog.events import Draft, Event, encode_line, read_event
from surfacelog.formats.frames import PIECE_BYTES, FrameReader, is_zstd
from surfacelog.formats.headers import CONTRACTS, Notice, read_log_header
from surfacelog.formats.packed import PACKED_TYPES, unpack
from surfacelog.formats.rows import is_json, members_of, split_rows
from surfacelog.header import Header

__all__ = ["OUTPUT_BYTES_MAX", "StoredLog", "line_of"]

# A log larger than this once inflated is taken for an attack unless the caller says otherwise.
OUTPUT_BYTES_MAX = 1 << 32


class StoredLog:
    """One stored log. `header` is read at once; iterating (once) gives the events in order.

    `rows`: rows with events read so far; `next_seq`: the seq that the next event must have; `notices`: what was
    left out or lost, complete after the iteration; `packed`: (first seq, number of events) of the first packed
    row, or None. `recover` goes by the client's own rule for its torn logs: good rows behind the damage are left
    out with it, and counted, unless a turn ends among them. Raises LedgerError with `detail["row"]` for damage
    that is not a torn tail, and ProtocolError too-large beyond `output_bytes_max`.
    """

    def __init__(
        self,
        data: bytes,
        *,
        output_bytes_max: int = OUTPUT_BYTES_MAX,
        header_required: bool = True,
        version: int = 4,
        recover: bool = False,
    ) -> None:
        self.rows = 0
        self.next_seq = 0
        self.notices: list[Notice] = []
        self.packed: tuple[int, int] | None = None
        self.header: Header | None = None
        self.version = version
        self._recover = recover
        self._unpacked_bytes_max = output_bytes_max
        if len(data) > output_bytes_max:
            raise ProtocolError(
                "too-large", f"the log has more than {output_bytes_max} bytes; raise the limit if it is trusted"
            )
        self._frames = FrameReader(data, output_bytes_max) if is_zstd(data) else None
        self._source = split_rows(self._frames if self._frames is not None else _slices(data))
        self._first: bytes | None = next(self._source, None)
        self._row = 0
        self._read_first(header_required)

    @property
    def contract(self) -> str:
        """The contract that the log's format stands for."""
        return CONTRACTS[self.version]

    def __iter__(self) -> Iterator[Event]:
        for number, row in self._numbered():
            try:
                events = self._events(row)
            except LedgerError as error:
                if is_json(row):
                    raise _at_row(error, number) from None
                self._cut(number, error)
                return
            for event in events:
                if event.seq != self.next_seq:
                    raise ContractError(
                        "seq-not-contiguous",
                        f"row {number}: seq {event.seq} comes where {self.next_seq} is due",
                        row=number,
                        seq=event.seq,
                    )
                self.next_seq += 1
                yield event
            self.rows += 1
        self._end()

    def _read_first(self, header_required: bool) -> None:
        first = self._first
        if first is None:
            if self._frames is not None and self._frames.torn:
                raise ProtocolError("malformed", f"nothing can be read of the log: {self._frames.torn}", row=0)
            if header_required:
                raise ProtocolError("malformed", "the log is empty: it has not even a header row", row=0)
            return
        if _type_of(first) == "session":
            try:
                self.header, self.version, notices = read_log_header(first)
            except LedgerError as error:
                raise _at_row(error, 0) from None
            self.notices += notices
            self._first = None
            self._row = 1
        elif header_required:
            raise ProtocolError("malformed", f"row 0 is not a session header: {_excerpt(first)}", row=0)

    def _numbered(self) -> Iterator[tuple[int, bytes]]:
        if self._first is not None:
            first, self._first = self._first, None
            self._row = 1
            yield 0, first
        for row in self._source:
            self._row += 1
            yield self._row - 1, row

    def _events(self, row: bytes) -> Iterable[Event]:
        if self.version == 0 and row.find(b"-chunks") >= 0 and _type_of(row) in PACKED_TYPES:
            events = unpack(row, self._unpacked_bytes_max)
            self._unpacked_bytes_max -= sum(len(event.data) for event in events)
            if self.packed is None:
                self.packed = (events[0].seq, len(events))
            return events
        return (read_event(row),)

    def _cut(self, number: int, error: LedgerError) -> None:
        """The row cannot be read: a torn tail if nothing good is behind it, else damage."""
        lost = 0
        for behind, row in self._numbered():
            if not is_json(row):
                continue
            lost += 1
            if not self._recover or _type_of(row) == "turn/end":
                raise ProtocolError(
                    "malformed",
                    f"row {number} is damaged and row {behind} behind it is not: {error.message}",
                    row=number,
                )
        text = f"row {number} is torn and was left out: {error.message}"
        if lost:
            text += f"; so were {lost} good rows of an unfinished turn behind it"
        self.notices.append(Notice("torn-row", text, number))
        self._end()

    def _end(self) -> None:
        frames = self._frames
        if frames is None or not frames.torn:
            return
        text = f"{frames.torn}, at byte {frames.torn_at}"
        if frames.more_behind:
            raise ProtocolError("malformed", f"row {self._row}: {text}, and whole frames follow it", row=self._row)
        self.notices.append(Notice("torn-frame", f"{text}; the rows from {self._row} on were left out", self._row))


def line_of(event: Event) -> bytes:
    """The event as one line again; `data` keeps its bytes."""
    offered = Draft(event.type, event.data, event.time, event.ignorable, event.surface_op, event.source_event_seqs)
    return encode_line(offered, event.seq, event.time)


def _slices(data: bytes) -> Iterator[bytes]:
    return (data[start : start + PIECE_BYTES] for start in range(0, len(data), PIECE_BYTES))


def _type_of(row: bytes) -> Any:
    written = members_of(row).get("type", b"")
    try:
        return msgspec.json.decode(written)
    except msgspec.MsgspecError:
        return None


def _at_row(error: LedgerError, number: int) -> LedgerError:
    return type(error)(error.code, f"row {number}: {error.message}", **{**error.detail, "row": number})


def _excerpt(row: bytes) -> str:
    return repr(row[:60])[1:]
