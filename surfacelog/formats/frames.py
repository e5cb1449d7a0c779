"""Concatenated zstd frames: where each one ends, and its content in pieces of bounded size.

A frame's end is found from its block headers without inflating it, so a torn frame is told from a whole one
before any of its content is used, and a checksum is verified before the first byte of a frame is given out.
"""

from collections.abc import Iterator

import zstandard

from surfacelog.errors import ProtocolError

__all__ = ["FrameReader", "is_zstd"]

MAGIC = b"\x28\xb5\x2f\xfd"
SKIPPABLE = b"\x2a\x4d\x18"
PIECE_BYTES = 1 << 18
# The format's own limit on what one block inflates to; larger sizes in a header are damage.
BLOCK_BYTES_MAX = 1 << 17
# 128 MiB is zstd's own default refusal for decoders.
WINDOW_BYTES_MAX = 1 << 27

# How many places that look like a frame are tried behind damage.
CANDIDATES_MAX = 1_000


class _Damaged(Exception):
    """The bytes at this place are not a whole frame."""


def is_zstd(data: bytes) -> bool:
    """Whether `data` begins with a zstd frame, or with what a cut left of its first four bytes."""
    head = data[:4]
    skippable = len(head) == 4 and 0x50 <= head[0] <= 0x5F and head[1:] == SKIPPABLE
    return skippable or (head != b"" and MAGIC.startswith(head))


class FrameReader:
    """Iterates over the content of all frames in `data`, as pieces of at most `PIECE_BYTES`.

    After the last piece `torn` says what is wrong with the frame at `torn_at` (a byte offset), or is empty; and
    `more_behind` whether whole frames follow the damage. Raises ProtocolError too-large when the content
    exceeds `output_bytes_max`.
    """

    def __init__(self, data: bytes, output_bytes_max: int) -> None:
        self.torn = ""
        self.torn_at = -1
        self.more_behind = False
        self._data = memoryview(data)
        self._output_bytes_max = output_bytes_max
        self._output_bytes = 0

    def __iter__(self) -> Iterator[bytes]:
        start = 0
        while start < len(self._data):
            try:
                end = _frame_end(self._data, start)
                if end is None:
                    yield from self._salvage(start)
                    raise _Damaged("the last zstd frame is cut off")
                # Inflated twice, so that nothing of a frame with a wrong checksum is ever given out.
                self._verify(start, end)
                yield from self._inflate(start, end)
            except _Damaged as damage:
                self.torn, self.torn_at = str(damage), start
                self.more_behind = self._whole_frame_behind(start + 1)
                return
            start = end

    def _verify(self, start: int, end: int) -> None:
        size_bytes = self._output_bytes
        for piece in _pieces(self._data[start:end]):
            size_bytes += len(piece)
            self._limit(size_bytes)

    def _inflate(self, start: int, end: int) -> Iterator[bytes]:
        for piece in _pieces(self._data[start:end]):
            self._output_bytes += len(piece)
            self._limit(self._output_bytes)
            yield piece

    def _salvage(self, start: int) -> Iterator[bytes]:
        """What a cut-off frame still holds: its whole blocks, as far as they inflate."""
        try:
            yield from self._inflate(start, len(self._data))
        except _Damaged:
            return

    def _limit(self, size_bytes: int) -> None:
        if size_bytes > self._output_bytes_max:
            raise ProtocolError(
                "too-large",
                f"the log inflates to more than {self._output_bytes_max} bytes; raise the limit if it is trusted",
            )

    def _whole_frame_behind(self, start: int) -> bool:
        """Whether any frame behind `start` is whole: then the damage is not a torn tail."""
        haystack = self._data.obj
        assert isinstance(haystack, bytes)
        found = haystack.find(MAGIC, start)
        for _ in range(CANDIDATES_MAX):
            if found < 0:
                return False
            try:
                end = _frame_end(self._data, found)
                if end is not None:
                    self._verify(found, end)
                    return True
            except _Damaged:
                pass
            found = haystack.find(MAGIC, found + 1)
        # No honest frame holds so many; refusing is the safe answer.
        return True


def _pieces(frame: memoryview) -> Iterator[bytes]:
    decoder = zstandard.ZstdDecompressor(max_window_size=WINDOW_BYTES_MAX)
    try:
        with decoder.stream_reader(frame, read_size=PIECE_BYTES, read_across_frames=False) as reader:
            while piece := reader.read(PIECE_BYTES):
                yield piece
    except zstandard.ZstdError as error:
        raise _Damaged(f"a zstd frame is damaged ({error})") from None


def _frame_end(data: memoryview, start: int) -> int | None:
    """The offset behind the frame at `start`; None when it reaches beyond the data."""
    head = bytes(data[start : start + 18])
    if len(head) >= 4 and 0x50 <= head[0] <= 0x5F and head[1:4] == SKIPPABLE:
        end = start + 8 + int.from_bytes(head[4:8], "little")
        return end if len(head) >= 8 and end <= len(data) else None
    if not head.startswith(MAGIC):
        if MAGIC.startswith(head):
            return None
        raise _Damaged("there are bytes that are no zstd frame")
    try:
        size = zstandard.frame_header_size(head)
        parameters = zstandard.get_frame_parameters(head)
    except zstandard.ZstdError as error:
        if len(head) < 18:
            return None
        raise _Damaged(f"a zstd frame header is damaged ({error})") from None
    if parameters.dict_id:
        raise _Damaged("a zstd frame needs a dictionary")
    blocks_end = _blocks_end(data, start + size)
    if blocks_end is None:
        return None
    end = blocks_end + 4 * parameters.has_checksum
    return end if end <= len(data) else None


def _blocks_end(data: memoryview, position: int) -> int | None:
    while position + 3 <= len(data):
        block = int.from_bytes(data[position : position + 3], "little")
        kind, size = block >> 1 & 3, block >> 3
        if kind == 3 or size > BLOCK_BYTES_MAX:
            raise _Damaged("a zstd block header is damaged")
        position += 3 + (1 if kind == 1 else size)
        if block & 1:
            return position if position <= len(data) else None
    return None
