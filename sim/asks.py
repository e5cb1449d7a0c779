"""What clients of a simulation ask for: requests with marks by which their events are found again."""

import random
from collections.abc import Sequence

import msgspec
from msgspec import Raw

from sim.evidence import Ask
from surfacelog.events import Draft

__all__ = ["AskMaker", "message", "note", "replacement"]


class AskMaker:
    """Numbers the asks of one run. Every mark and owner is used once."""

    def __init__(self, chance: random.Random) -> None:
        self._chance = chance
        self._count = 0

    def mint(self) -> int:
        """The next number."""
        self._count += 1
        return self._count

    def plain(self, client: str, key: bytes, kind: str, **fields: object) -> Ask:
        """An open, claim, release or delete."""
        number = self.mint()
        owner = f"owner-{number}" if kind == "claim" else ""
        return msgspec.convert(
            {"number": number, "client": client, "key": key, "kind": kind, "owner": owner, **fields}, Ask
        )

    def append(
        self,
        client: str,
        session: bytes,
        *,
        fence: str | None = None,
        expected_seq: int | None = None,
        keyed: bool = False,
        since: int = 0,
        logged: bool = False,
        span: Sequence[int] = (),
    ) -> Ask:
        """1 to 3 events; with `span` (seqs of nodes side by side on the surface) the first replaces them."""
        number = self.mint()
        count = self._chance.choice((1, 1, 1, 2, 3))
        marks = tuple(f"m{number}.{place}" for place in range(count))
        drafts = [note(mark) if self._chance.random() < 0.2 else message(mark) for mark in marks]
        if span:
            drafts[0] = replacement(marks[0], span)
        key = f"k{number}" if keyed else None
        return Ask(
            number, client, session, "commit", tuple(drafts), marks, fence, expected_seq, key, since, logged
        )


def _user(mark: str) -> Raw:
    content = [{"type": "text", "text": mark}]
    return Raw(msgspec.json.encode({"id": mark, "role": "user", "content": content, "source": {"kind": "user"}}))


def message(mark: str) -> Draft:
    """A message on the surface."""
    return Draft("user/message", _user(mark), surface_op=Raw(b'"append"'))


def note(mark: str) -> Draft:
    """An event that stays off the surface."""
    return Draft("sim/note", Raw(msgspec.json.encode({"mark": mark})), ignorable=True)


def replacement(mark: str, span: Sequence[int]) -> Draft:
    """A message in the place of the nodes `span`."""
    op = {"op": "replace", "startSeq": span[0], "endSeq": span[-1]}
    sources = Raw(msgspec.json.encode(sorted(span)))
    return Draft("user/message", _user(mark), surface_op=Raw(msgspec.json.encode(op)), source_event_seqs=sources)
