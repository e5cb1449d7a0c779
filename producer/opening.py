"""Opening a session: the record that gives it its header, and what its caller gets back."""

import msgspec

from surfacelog.header import Header
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

__all__ = ["Created", "OpenIntent"]


class Created(msgspec.Struct, frozen=True, rename="camel"):
    """A session that exists now. `open_id` names this opening for good. `chain`: hex. `token`: for readers."""

    session: str
    open_id: str
    offset: int
    chain: str
    next_seq: int
    token: str


class OpenIntent:
    """`open_id` makes a repeat harmless: an open of the same id is the same opening, whoever sends it again."""

    __slots__ = ("_header", "_open_id")
    certain = False

    def __init__(self, header: Header, open_id: str) -> None:
        self._header = header
        self._open_id = open_id

    def record(self, state: SessionState, record_id: str, now_ms: int, reply: str) -> Record:
        """The open record; its id is the opening's, not the attempt's."""
        return Record("open", self._open_id, self._header.encode(), reply=reply)

    def excuse(self, state: SessionState) -> Verdict | None:
        """The session was opened by this very request."""
        if state.open_id != self._open_id or state.status != "open":
            return None
        return Verdict("accepted", self._open_id, "", 0, 0, state.first_offset, state.next_seq, state.chain)
