"""What the clients of one run asked, were told and read: all that the checkers judge besides the log itself."""

from collections.abc import Sequence

import msgspec

from surfacelog.events import Draft

__all__ = ["TRANSIENT", "Answer", "Ask", "Evidence", "Read"]

# Refusals that say nothing of the session: the client may come again.
TRANSIENT = frozenset(
    {"locked", "overloaded", "rebuilding", "unavailable", "unknown-outcome", "forking", "faulted"}
)


class Ask(msgspec.Struct, frozen=True):
    """One request of a client; its retries are the same ask. `key`: the session's record key. `marks`: one unique
    text per event, which the event's data carries. `fence`: of the claim that the client writes under, or None.
    `since`: the head that it knew when it first used its idempotency key. `logged`: an answer from the log
    alone will do. `owner`: of a claim. `parent`,
    `boundary`: of a fork, whose session is the child."""

    number: int
    client: str
    key: bytes
    kind: str
    drafts: tuple[Draft, ...] = ()
    marks: tuple[str, ...] = ()
    fence: str | None = None
    expected_seq: int | None = None
    idempotency: str | None = None
    since: int = 0
    logged: bool = False
    takeover: bool = False
    owner: str = ""
    parent: str = ""
    boundary: int = -1


class Answer(msgspec.Struct, frozen=True):
    """One attempt of an ask and what came back. `outcome`: accepted, rejected, unknown, or refuted (what was
    unknown until then turned out to be rejected). `end_before` and
    `end_after`: the log end of the partition when the attempt began and when it was answered."""

    ask: int
    outcome: str
    end_before: int
    end_after: int
    code: str = ""
    seq: int = -1
    count: int = 0
    offset: int = -1
    next_seq: int = -1
    chain: bytes = b""
    fence: str = ""
    commit_id: str = ""


class Read(msgspec.Struct, frozen=True):
    """One answer to a reader: the head it states, the messages or the surface nodes (seqs) that it shows. `floor`:
    the seq that the reader asked for at least."""

    client: str
    key: bytes
    next_seq: int
    generation: int
    messages: tuple[bytes, ...] | None
    nodes: tuple[int, ...] | None = None
    floor: int = 0


class Evidence:
    """Everything that was told in one run, in the order in which it was told."""

    def __init__(self) -> None:
        self.asks: dict[int, Ask] = {}
        self.answers: list[Answer] = []
        self.reads: list[Read] = []

    def of(self, ask: Ask) -> Sequence[Answer]:
        """The answers to one ask."""
        return [answer for answer in self.answers if answer.ask == ask.number]

    def final(self, ask: Ask) -> Answer | None:
        """What the client may rely on: accepted once it was told so; unknown from the first unknown attempt on;
        rejected only if every attempt was surely refused. None when no attempt was answered at all."""
        answers = self.of(ask)
        refuted = {answer.commit_id for answer in answers if answer.outcome == "refuted"}
        answers = [answer for answer in answers if answer.outcome != "unknown" or answer.commit_id not in refuted]
        for outcome in ("accepted", "unknown"):
            for answer in answers:
                if answer.outcome == outcome:
                    return answer
        return answers[-1] if answers else None
