"""Records of one session, made against a state as an honest writer makes them."""

from typing import Any

import msgspec

from surfacelog.accept import accept
from surfacelog.claim import Claim
from surfacelog.events import Draft, encode_line
from surfacelog.header import Header
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict
from tests.unit.acts import said, user

__all__ = ["Writer", "opened"]


class Writer:
    """Numbers its records and offsets; every record can be bent with `changes`."""

    def __init__(self, state: SessionState | None = None) -> None:
        self.state = SessionState() if state is None else state
        self.offset = -1
        self.made = 0

    def open(self, **changes: Any) -> Record:
        """An open of the session."""
        header = changes.pop("header", None) or Header(id="s", created_at=1)
        return self._record("open", header.encode(), **changes)

    def commit(self, *drafts: Draft, **changes: Any) -> Record:
        """A commit of the drafts (one user message when there are none), on the present head."""
        state = self.state
        seq = changes.get("seq", state.next_seq)
        offered = drafts or (user(said("u")),)
        lines = [encode_line(draft, seq + index, 0) for index, draft in enumerate(offered)]
        made = {"prev": state.chain, "seq": seq, "fence": state.fence}
        return self._record("commit", b"\n".join(lines), **{**made, **changes})

    def claim(self, owner: str, epoch: int | None = None, **changes: Any) -> Record:
        """A claim with the next epoch."""
        claim = Claim(self.state.claim.epoch + 1 if epoch is None else epoch, owner, f"claim-{self.made}", 1000, 5)
        content = changes.pop("value", msgspec.json.encode(claim))
        return self._record("claim", content, **{"prev": self.state.root, **changes})

    def release(self, **changes: Any) -> Record:
        """A release of the present claim."""
        return self._record("release", b"", **{"fence": self.state.fence, "prev": self.state.root, **changes})

    def delete(self, **changes: Any) -> Record:
        """A delete that names the open."""
        return self._record("delete", self.state.open_id.encode(), **changes)

    def _record(self, of: str, content: bytes, **changes: Any) -> Record:
        self.made += 1
        return Record(**{"kind": of, "id": f"{of}-{self.made}", "value": content, **changes})

    def put(self, record: Record | None) -> Verdict:
        """Folds the record at the next offset."""
        self.offset += 1
        return accept(self.state, record, self.offset)


def opened(**header: Any) -> Writer:
    """A writer whose session is open."""
    writer = Writer()
    assert writer.put(writer.open(header=Header(id="s", created_at=1, **header))).outcome == "accepted"
    return writer
