"""Every refusal the ledger can give, with its stable code.

One root, one registry. A code never changes its meaning; the gateway maps codes to HTTP in one table.
"""

from collections.abc import Mapping
from typing import Any

__all__ = ["CODES", "CONTRACT_CODES", "ContractError", "LedgerError", "ProtocolError"]

CONTRACT_CODES: Mapping[str, str] = {
    "json-invalid": "the text is not JSON",
    "number-range": "a number is NaN, infinite or too long to be kept",
    "number-negative-zero": "a number is -0, which readers turn into 0",
    "depth-exceeded": "the data nests deeper than 512 levels",
    "envelope-invalid": "the envelope has an unknown, missing or wrong field",
    "seq-not-contiguous": "the event's seq is not the next free one",
    "type-unknown": "the session does not know this event type and it is not marked ignorable",
    "message-invalid": "a surface event's data has no message with a list of content blocks",
    "developer-role": "the role developer belongs to developer/message, and only to it",
    "tool-change-role": "tools are added and removed only in a developer/message",
    "tool-change-name": "a tool addition or removal names no tool",
    "tool-addition-inline": "a tool addition carries the tool itself instead of naming it in a header",
    "developer-header-seq": "headerSeq belongs to a developer/message with tool additions, and only there",
    "developer-header-missing": "headerSeq names no earlier request/header",
    "developer-tool-unknown": "the named header does not define the added tool exactly once",
    "developer-tool-incomplete": "the named header does not define the added tool completely",
    "header-system": "a request/header carries a system prompt",
    "header-empty-tools": "a request/header carries an empty list of tools",
    "header-empty-defaults": "a request/header carries empty adapterDefaults",
    "tool-error-flag": "a tool/result with an error is not marked isError",
    "offload-targets-invalid": "image/offload has no list of targets",
    "offload-target-invalid": "an image/offload target is not {seq, imageIndexes}",
    "offload-indexes-invalid": "image indexes are not non-negative and strictly increasing",
    "offload-target-duplicate": "an image/offload names a node twice",
    "offload-target-not-on-surface": "an image/offload target is not on the current surface",
    "offload-target-wrong-type": "an image/offload target is neither a user/message nor a tool/result",
    "offload-image-missing": "an image/offload target has no image of that index",
    "offload-already": "the image is offloaded already",
    "surface-op-required": "a surface event lacks surfaceOp",
    "surface-op-forbidden": "an event that is not for the surface carries surfaceOp",
    "surface-op-invalid": "surfaceOp is neither append nor a replace",
    "replace-op-invalid": "a replace has not exactly the contract's keys with seqs as its ends",
    "replace-not-earlier": "an end of the replaced range is not earlier than the event",
    "sources-on-assistant": "an assistant/message embeds its stream and carries no sourceEventSeqs",
    "sources-forbidden": "an event that is not for the surface carries sourceEventSeqs",
    "sources-not-array": "sourceEventSeqs is not a list",
    "sources-empty": "sourceEventSeqs is empty",
    "sources-not-seqs": "sourceEventSeqs holds something else than seqs",
    "sources-duplicate": "sourceEventSeqs holds a seq twice",
    "sources-not-earlier": "sourceEventSeqs holds a seq that is not earlier than the event",
    "sources-incomplete": "sourceEventSeqs does not name every node that the replace shadows",
    "replace-start-missing": "the start of the replaced range is not on the current surface",
    "replace-end-missing": "the end of the replaced range is not on the current surface",
    "replace-range-reversed": "the replaced range starts behind its end on the surface",
    "tool-rewrite-not-single": "a tool/result replaces more than one node",
    "tool-rewrite-wrong-target": "a tool/result replaces a node that is no tool/result",
    "tool-rewrite-changes-more": "a tool/result rewrite changes something else than content",
    "system-head-protected": "the system prompt at the head is replaced only by another, and alone",
    "call-unknown": "a tool/result answers no open call",
    "call-duplicate": "an assistant/message makes a call whose id is open already or used twice in it",
    "calls-too-many": "more tool calls would be open at once than a session that checks pairs keeps",
    "call-shadowed": "a replace shadows a call that is still open",
    "pair-split": "a replace separates a call from its result",
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

MESSAGE_CHARS_MAX = 400
CODES: Mapping[str, str] = {**CONTRACT_CODES, **PROTOCOL_CODES}


class LedgerError(Exception):
    """A refusal: `code` (from `CODES`), a sentence saying what to do next, and JSON-ready details."""

    def __init__(self, code: str, message: str, **detail: Any) -> None:
        assert code in CODES, f"unregistered code {code}"
        # Verdicts are kept and sent: a stranger's long name must not make them long.
        message = message if len(message) <= MESSAGE_CHARS_MAX else message[: MESSAGE_CHARS_MAX - 1] + "…"
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.detail = detail


class ContractError(LedgerError):
    """An event breaks a rule of its session's contract; nothing was used up."""


class ProtocolError(LedgerError):
    """The ledger cannot do what was asked, for a reason outside the event itself."""
