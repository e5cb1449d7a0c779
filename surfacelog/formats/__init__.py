"""Reading session logs that a client stored: formats 4 and 0, plain or in zstd frames. Nothing is written."""

from surfacelog.formats.headers import Notice
from surfacelog.formats.stored import OUTPUT_BYTES_MAX, StoredLog, line_of

__all__ = ["OUTPUT_BYTES_MAX", "Notice", "StoredLog", "line_of"]
