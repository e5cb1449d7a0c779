"""Files that a command is given: read whole, up to a bound, so that a device or a pipe without end is refused."""

from pathlib import Path

from surfacelog.errors import ProtocolError
from surfacelog.formats import OUTPUT_BYTES_MAX, ROW_BYTES_MAX, is_zstd

__all__ = ["read_file"]

PIECE_BYTES = 1 << 20


def read_file(path: Path, size_bytes_max: int = OUTPUT_BYTES_MAX) -> bytes:
    """Its bytes. Raises OSError; and ProtocolError too-large for more than `size_bytes_max` bytes, and for a row
    that no stored log has, as soon as it is seen (`detail["row"]`)."""
    held = bytearray()
    rows = row_start = 0
    with path.open("rb") as file:
        while piece := file.read(PIECE_BYTES):
            cut = piece.rfind(b"\n")
            if cut >= 0:
                rows += piece.count(b"\n")
                row_start = len(held) + cut + 1
            held += piece
            if len(held) > size_bytes_max:
                raise ProtocolError(
                    "too-large",
                    f"the file has more than {size_bytes_max} bytes; give a smaller one, or raise the limit",
                )
            if len(held) - row_start > ROW_BYTES_MAX and not is_zstd(bytes(held[:4])):
                raise ProtocolError("too-large", f"row {rows} is longer than {ROW_BYTES_MAX} bytes", row=rows)
    return bytes(held)
