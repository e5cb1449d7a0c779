"""One offline session under test: events offered one by one, and what the core makes of them.

Every answer is given twice, by the in-memory session and by a full fold of its lines; a difference is an error.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from surfacelog import lossless
from surfacelog.contract import CONTRACTS
from surfacelog.errors import ContractError
from surfacelog.events import Event, read_event
from surfacelog.fold import Fold, fold
from surfacelog.header import Header
from surfacelog.session import Session
from surfacelog.surface import Surface

__all__ = ["FIRST_TIME", "Rules", "Trial", "fold_refusal", "numbered", "session_refusal", "unknown_type"]

# An offered event without a time gets this plus its seq, ms.
FIRST_TIME = 1_700_000_000_000


class Rules(msgspec.Struct, frozen=True):
    """What decides in a session under test."""

    contract: str = "v4"
    checks: str = "surface"
    vocabulary: tuple[str, ...] = ()

    def header(self) -> Header:
        """A session header with these rules."""
        fields = {"id": "trial", "createdAt": FIRST_TIME, **msgspec.to_builtins(self)}
        return msgspec.convert(fields, Header)


class Trial:
    """A session that starts empty."""

    def __init__(self, rules: Rules) -> None:
        self.rules = rules
        self.session = Session(rules.header())

    def offer(self, text: bytes) -> int:
        """Offers an envelope that may lack seq and time; its seq, or ContractError."""
        return self.session.append_line(numbered(text, self.session.next_seq))

    def folded(self) -> Fold:
        """The full fold of the session's lines; asserts that it equals the session's own state."""
        again = fold(self.session.lines, self.rules.contract)
        surface = self.session.surface
        assert again.nodes == surface.nodes, f"fold {again.nodes}, session {surface.nodes}"
        assert again.replace_generation == surface.replace_generation, "replace generations differ"
        assert again.content_generation == surface.content_generation, "content generations differ"
        assert again.transcript == list(self.session.transcript), "transcripts differ"
        kept = [(message.seq, message.json) for message in self.session.messages]
        assert again.messages() == kept, "messages differ"
        return again

    def messages(self) -> list[tuple[int, Any]]:
        """(seq, message) in surface order."""
        return [(message.seq, lossless.read(message.json)) for message in self.session.messages]

    def roles(self) -> list[list[Any]]:
        """[seq, role] of each message."""
        return [[seq, message.get("role")] for seq, message in self.messages()]

    def events(self) -> Sequence[Event]:
        """The events accepted so far."""
        return self.session.events


def numbered(text: bytes, seq: int) -> bytes:
    """The envelope with a seq and a time when it has none; the rest stays byte for byte."""
    members = lossless.members(text)
    if members is None:
        raise ContractError("envelope-invalid", "an event is a JSON object")
    members.setdefault("seq", b"%d" % seq)
    members.setdefault("time", b"%d" % (FIRST_TIME + seq))
    return b"{" + b",".join(lossless.canonical(name) + b":" + value for name, value in members.items()) + b"}"


def session_refusal(lines: Iterable[bytes], rules: Rules) -> tuple[int, ContractError] | None:
    """Where a session that loads the lines refuses one: (index, why), or None."""
    session = Session(rules.header())
    for index, line in enumerate(lines):
        try:
            session.append_line(line)
        except ContractError as error:
            return index, error
    return None


def fold_refusal(lines: Iterable[bytes], rules: Rules) -> tuple[int, ContractError] | None:
    """Where a fold that looks at relations and not at content refuses a line: (index, why), or None."""
    surface = Surface(rules.contract, vocabulary=rules.vocabulary, content="trusted")
    for index, line in enumerate(lines):
        try:
            surface.apply(surface.plan(read_event(line)))
        except ContractError as error:
            return index, error
    return None


def unknown_type(events: Iterable[Event], rules: Rules) -> int | None:
    """The index of the first event whose type the rules do not know and that is not ignorable."""
    contract = CONTRACTS[rules.contract]
    known = contract.surface_types | contract.log_types | set(rules.vocabulary)
    for index, event in enumerate(events):
        if event.type not in known and event.ignorable is not True:
            return index
    return None
