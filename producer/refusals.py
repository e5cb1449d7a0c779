"""What a caller is told when the answer is no: the fold's code, a sentence that says what to do, the present
head."""

from surfacelog.errors import CONTRACT_CODES, PROTOCOL_CODES, ContractError, LedgerError, ProtocolError
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["FINAL_CODES", "STANDING_CODES", "refusal"]

# These do not depend on the session's state, so no fresher state could change them.
FINAL_CODES = frozenset({"too-large", "overloaded", "bad-request", "malformed"})
# These are states of affairs that an operator ends, not a backlog that passes.
STANDING_CODES = frozenset({"faulted", "log-truncated"})

_ADVICE = {
    "seq-conflict": "the session went on; read it and decide again from the present head",
    "fenced": "another run owns the session now; stop, or claim it anew",
    "no-session": "no session of this id exists; create it first",
    "key-expired": "the idempotency key is too old to tell whether it was used; read the session first",
    "key-reused": "the idempotency key was used for a different request; choose another key",
}


def refusal(verdict: Verdict, state: SessionState) -> LedgerError:
    """What a caller is told of a rejected verdict, with the present head where that helps."""
    code, message = verdict.code, verdict.message
    if code in CONTRACT_CODES:
        return ContractError(code, message or CONTRACT_CODES[code], next_seq=state.next_seq)
    if state.forking and code == "fenced":
        return ProtocolError("forking", "the session is a fork whose copy is not finished; try again soon")
    detail: dict[str, object] = {}
    if code in ("seq-conflict", "chain-conflict"):
        detail = {"next_seq": state.next_seq, "chain": state.chain.hex()}
    elif code in ("fenced", "stale-claim"):
        detail = {"owner": state.claim.owner, "epoch": state.claim.epoch}
    return ProtocolError(code, message or _ADVICE.get(code, PROTOCOL_CODES[code]), **detail)
