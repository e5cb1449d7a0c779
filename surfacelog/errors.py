"""Every refusal the ledger can give, with its stable code.

One root, one registry. A code never changes its meaning; the gateway maps codes to HTTP in one table.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["CODES", "ContractError", "LedgerError", "ProtocolError"]

CONTRACT_CODES: Mapping[str, str] = {
    "seq-not-contiguous": "the event's seq is not the next free one",
    "type-unknown": "the session does not know this event type and it is not marked ignorable",
}

PROTOCOL_CODES: Mapping[str, str] = {
    "no-session": "no session of this id exists here",
    "gone": "the session was deleted; its id is never used again",
    "session-exists": "a session of this id exists already",
    "seq-conflict": "another writer appended first",
    "chain-conflict": "the history this commit was built on is not the accepted one",
    "fenced": "another run owns the session now",
    "stale-claim": "the session was claimed by somebody else in the meantime",
    "key-reused": "the idempotency key was used for a different request",
    "key-expired": "the idempotency key is too old to tell whether it was used",
    "malformed": "the bytes cannot be read under their version and limits",
    "locked": "another writer holds the session's lock",
    "unknown-outcome": "the append was sent and its verdict did not arrive in time",
    "rebuilding": "the cache is behind the log",
    "overloaded": "more work is waiting than can be done in time",
    "too-large": "the record is larger than the log takes",
    "faulted": "the session is parked after a fault",
    "log-truncated": "the log is not the one that was read before",
    "unavailable": "the log or the cache does not answer",
    "forking": "the session is a fork whose copy is not finished",
    "bad-request": "the request cannot be read",
    "unauthorized": "the credential is missing or not valid",
    "misconfigured": "a setting, or a server's setting, forbids what was asked for",
}

CODES: Mapping[str, str] = {**CONTRACT_CODES, **PROTOCOL_CODES}


class LedgerError(Exception):
    """A refusal: `code` (from `CODES`), a sentence saying what to do next, and JSON-ready details."""

    def __init__(self, code: str, message: str, **detail: Any) -> None:
        assert code in CODES, f"unregistered code {code}"
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail


class ContractError(LedgerError):
    """An event breaks a rule of its session's contract; nothing was used up."""


class ProtocolError(LedgerError):
    """The ledger cannot do what was asked, for a reason outside the event itself."""
