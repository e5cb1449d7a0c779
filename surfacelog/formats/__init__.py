"""Reading session logs that a client stored: formats 4 and 0, plain or in zstd frames. Nothing is written."""

from surfacelog.formats.frames import is_zstd
from surfacelog.formats.headers import Notice
from surfacelog.formats.rows import ROW_BYTES_MAX
from surfacelog.formats.stored import OUTPUT_BYTES_MAX, StoredLog, line_of

__all__ = ["OUTPUT_BYTES_MAX", "ROW_BYTES_MAX", "Notice", "StoredLog", "is_zstd", "line_of"]
