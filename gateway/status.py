"""Which HTTP status each code answers with, in one table, and the body that every refusal has.

A body is `{code, message, detail}`. Nothing in it names a host, a topic or a key of the log or the cache.
"""

from collections.abc import Mapping
from typing import Any

import msgspec

from surfacelog.errors import CODES, LedgerError

__all__ = ["HTTP_CODES", "STATUS", "Refusal", "refusal_of", "status_of"]

# Codes that only HTTP knows: the ledger itself never refuses with them.
HTTP_CODES: Mapping[str, str] = {
    "no-route": "nothing is served at this path",
    "method-not-allowed": "the path does not take this method",
    "cross-origin": "a page of another origin, or another host's name, without credentials",
    "internal": "an unexpected fault; the log of the server tells more",
}

STATUS: Mapping[str, int] = {
    "bad-request": 400,
    "json-invalid": 400,
    "malformed": 400,
    "unauthorized": 401,
    "cross-origin": 403,
    "no-session": 404,
    "no-route": 404,
    "method-not-allowed": 405,
    "session-exists": 409,
    "seq-conflict": 409,
    "chain-conflict": 409,
    "fenced": 409,
    "stale-claim": 409,
    "key-expired": 409,
    "faulted": 409,
    "forking": 409,
    "gone": 410,
    "too-large": 413,
    "key-reused": 422,
    "locked": 423,
    "overloaded": 429,
    "internal": 500,
    "log-truncated": 500,
    "misconfigured": 500,
    "rebuilding": 503,
    "unavailable": 503,
    "unknown-outcome": 504,
}

# Every other code is a rule of the event contract: the request was read, and it may not be carried out.
CONTRACT_STATUS = 422

RETRY_AFTER_S = 1
_RETRIED = frozenset({"overloaded", "rebuilding", "unavailable", "locked"})
_DETAIL_BYTES_MAX = 4096


class Refusal(msgspec.Struct, frozen=True):
    """A refusal as HTTP gives it: `body` is JSON, `retry_after_s` 0 when repeating at once is pointless."""

    code: str
    status: int
    body: bytes
    retry_after_s: int = 0


def status_of(code: str) -> int:
    """The HTTP status of a code."""
    return STATUS.get(code, CONTRACT_STATUS)


def refusal_of(error: LedgerError) -> Refusal:
    """How a refusal of the ledger is told over HTTP."""
    return refuse(error.code, error.message, error.detail)


def refuse(code: str, message: str, detail: Mapping[str, Any] | None = None) -> Refusal:
    """A refusal by its code, which must be registered."""
    assert code in CODES or code in HTTP_CODES, f"unregistered code {code}"
    found = dict(detail or {})
    retry_ms = found.get("retry_after_ms", found.get("retryAfterMs"))
    retry_s = 0
    if code in _RETRIED:
        retry_s = (
            max(RETRY_AFTER_S, -(-int(retry_ms) // 1000)) if isinstance(retry_ms, (int, float)) else RETRY_AFTER_S
        )
    body = msgspec.json.encode({"code": code, "message": message, "detail": _plain(found)})
    return Refusal(code, status_of(code), body, retry_s)


def _plain(detail: dict[str, Any]) -> dict[str, Any]:
    """Details in camel case; bytes as hex; a detail too large to be of help is left out."""
    told: dict[str, Any] = {}
    for name, value in detail.items():
        head, *rest = name.split("_")
        try:
            shown = value.hex() if isinstance(value, bytes) else value
            if len(msgspec.json.encode(shown)) <= _DETAIL_BYTES_MAX:
                told[head + "".join(part.capitalize() for part in rest)] = shown
        except (TypeError, ValueError, OverflowError):
            continue
    return told
