"""Every checker is silent about a good run and speaks about a planted violation."""

from collections.abc import Callable

import msgspec
import pytest

from producer.log import LogRecord
from sim.checkers import CHECKS, check_projections, check_run
from sim.evidence import Answer, Ask, Evidence, Read
from sim.history import History, Step, replay
from surfacelog.accept import preview
from surfacelog.events import Draft, encode_line
from surfacelog.records import Record, fence_text
from surfacelog.state import SessionState

KEY = b"t/s"


def _draft(mark: str) -> Draft:
    data = {"id": mark, "role": "user", "content": [{"type": "text", "text": mark}], "source": {"kind": "user"}}
    return Draft("user/message", msgspec.Raw(msgspec.json.encode(data)), surface_op=msgspec.Raw(b'"append"'))


class Run:
    """A run of one session, written as its records, with the evidence of a truthful ledger."""

    def __init__(self) -> None:
        self.state = SessionState()
        self.rows: list[LogRecord] = []
        self.evidence = Evidence()

    def write(self, record: Record, ask: Ask, fence: str = "") -> None:
        verdict = preview(self.state, record)
        before = len(self.rows)
        self.rows.append(LogRecord(0, before, KEY, record.headers(), record.value))
        self.evidence.asks[ask.number] = ask
        self.evidence.answers.append(
            Answer(
                ask.number,
                verdict.outcome,
                before,
                before + 1,
                verdict.code,
                verdict.seq,
                verdict.count,
                before,
                verdict.next_seq,
                verdict.chain,
                fence,
                record.id,
            )
        )

    def commit(self, number: int, *marks: str, **fields: object) -> None:
        drafts = tuple(_draft(mark) for mark in marks)
        seq = self.state.next_seq
        value = b"\n".join(encode_line(draft, seq + n, 0) for n, draft in enumerate(drafts))
        record = Record(
            "commit", f"id-{number}", value, self.state.chain, fields.pop("fence", self.state.fence), seq
        )
        self.write(record, Ask(number, "ann", KEY, "commit", drafts, marks, record.fence))

    def claim(self, number: int, owner: str, takeover: bool = False) -> None:
        epoch = self.state.claim.epoch + 1
        value = msgspec.json.encode({"epoch": epoch, "owner": owner, "claim": f"id-{number}"})
        ask = Ask(number, owner, KEY, "claim", takeover=takeover, owner=owner)
        record = Record("claim", f"id-{number}", value, self.state.root)
        self.write(record, ask, fence_text(epoch, owner, f"id-{number}"))


@pytest.fixture
def run() -> Run:
    good = Run()
    header = b'{"id":"s","createdAt":0,"version":4}'
    good.write(Record("open", "id-0", header), Ask(0, "ann", KEY, "open"))
    good.commit(1, "m1")
    good.commit(2, "m2a", "m2b")
    good.claim(3, "owner-a")
    good.commit(4, "m4")
    good.claim(5, "owner-b", takeover=True)
    good.commit(6, "m6", fence=fence_text(1, "owner-a", "id-3"))
    good.commit(7, "m7")
    history = replay({0: good.rows})[KEY]
    for head in history.prefixes:
        nodes = history.prefixes[head]
        good.evidence.reads.append(Read("ann", KEY, *head, tuple(body for _, body in nodes)))
        good.evidence.reads.append(Read("ann", KEY, *head, None, tuple(seq for seq, _ in nodes)))
    return good


def _broken(run: Run, change: Callable[[Evidence, History], None]) -> set[str]:
    histories = replay({0: run.rows})
    change(run.evidence, histories[KEY])
    return {finding.promise for finding in check_run(run.evidence, histories)}


def _alter(evidence: Evidence, ask: int, **fields: object) -> None:
    place = next(n for n, answer in enumerate(evidence.answers) if answer.ask == ask)
    evidence.answers[place] = msgspec.structs.replace(evidence.answers[place], **fields)


def _alter_step(history: History, offset: int, **fields: object) -> None:
    place = next(n for n, step in enumerate(history.steps) if step.offset == offset)
    history.steps[place] = msgspec.structs.replace(history.steps[place], **fields)


def _accept_again(history: History, offset: int) -> None:
    step = history.steps[offset]
    history.steps.append(
        Step(99, step.record, msgspec.structs.replace(step.verdict, outcome="accepted"), *_context(step))
    )


def _context(step: Step) -> tuple[str, str, bytes, int, tuple[int, int]]:
    return step.fence, step.holder, step.chain, step.next_seq, step.head


def _inherit(history: History, count: int) -> None:
    history.inherited, history.parent = count, b"t/other"


def _release(evidence: Evidence, fence: str) -> None:
    evidence.asks[91] = Ask(91, "ann", KEY, "release", fence=fence)
    evidence.answers.append(Answer(91, "accepted", 8, 8))


def _fork(evidence: Evidence, child: bytes) -> None:
    evidence.asks[90] = Ask(90, "ann", child, "fork", parent="s", boundary=1)
    evidence.answers.append(Answer(90, "accepted", 8, 8, count=2))


def test_a_good_run_has_no_findings(run: Run):
    assert _broken(run, lambda evidence, history: None) == set()
    assert [answer.code for answer in run.evidence.answers if answer.outcome == "rejected"] == ["fenced"]


PLANTED: list[tuple[str, Callable[[Evidence, History], None]]] = [
    ("acknowledged_stays", lambda evidence, history: history.marks.pop("m2b")),
    ("acknowledged_stays", lambda evidence, history: history.marks.update(m1=[7])),
    ("acknowledged_stays", lambda evidence, history: _alter(evidence, 1, offset=6)),
    ("acknowledged_stays", lambda evidence, history: _alter(evidence, 1, offset=3)),
    ("acknowledged_stays", lambda evidence, history: _alter(evidence, 3, fence="9:nobody:x")),
    ("acknowledged_stays", lambda evidence, history: _release(evidence, fence_text(2, "owner-b", "id-5"))),
    ("nothing_doubled", lambda evidence, history: history.marks["m7"].append(9)),
    ("nothing_doubled", lambda evidence, history: history.marks.pop("m2b")),
    ("rejected_never_present", lambda evidence, history: history.marks.update(m6=[4])),
    ("refusals_deserved", lambda evidence, history: _alter(evidence, 6, code="no-session")),
    ("refusals_deserved", lambda evidence, history: _alter(evidence, 6, end_before=4, end_after=5)),
    ("contiguous", lambda evidence, history: history.lines.pop(1)),
    ("chain_intact", lambda evidence, history: _alter_step(history, 2, chain=b"other")),
    ("chain_intact", lambda evidence, history: _alter_step(history, 2, next_seq=7)),
    ("chain_intact", lambda evidence, history: _alter(evidence, 2, chain=b"other")),
    ("claims_hold", lambda evidence, history: _alter_step(history, 4, holder="2:x:y")),
    (
        "claims_hold",
        lambda evidence, history: evidence.asks.update(
            {5: msgspec.structs.replace(evidence.asks[5], takeover=False)}
        ),
    ),
    ("superseded_is_silent", lambda evidence, history: _alter(evidence, 6, outcome="accepted")),
    ("ids_final", lambda evidence, history: _accept_again(history, 6)),
    ("ids_final", lambda evidence, history: _accept_again(history, 1)),
    ("forks_inherit", lambda evidence, history: _inherit(history, 2)),
    ("forks_inherit", lambda evidence, history: _fork(evidence, b"t/nowhere")),
    ("forks_inherit", lambda evidence, history: _fork(evidence, KEY)),
    ("one_history", lambda evidence, history: evidence.reads.append(Read("bob", KEY, 2, 0, ()))),
    ("one_history", lambda evidence, history: evidence.reads.append(Read("bob", KEY, 3, 0, (b"x",) * 3))),
    (
        "one_history",
        lambda evidence, history: evidence.reads.append(Read("bob", KEY, 1, 0, None, (0,), floor=3)),
    ),
    ("one_history", lambda evidence, history: evidence.reads.append(Read("bob", KEY, 3, 0, None, (0, 2, 1)))),
    (
        "replay_decides_alike",
        lambda evidence, history: _alter_step(
            history, 6, verdict=msgspec.structs.replace(history.steps[6].verdict, code="seq-conflict")
        ),
    ),
]


@pytest.mark.parametrize(("promise", "plant"), PLANTED, ids=[f"{name}-{n}" for n, (name, _) in enumerate(PLANTED)])
def test_a_planted_violation_is_found(run: Run, promise: str, plant: Callable[[Evidence, History], None]):
    assert promise in _broken(run, plant)


def test_every_checker_has_a_planted_violation():
    assert {check.__name__ for check in CHECKS} == {promise for promise, _ in PLANTED}


def test_a_projection_that_differs_or_is_missing_or_too_many_is_found():
    wanted = {KEY: {"meta": b"1", "messages": (b"a",)}}
    assert check_projections(wanted, wanted) == []
    assert check_projections({KEY: {"meta": b"1", "messages": (b"b",)}}, wanted)
    assert check_projections({}, wanted)
    assert check_projections({**wanted, b"t/other": {"meta": b"1"}}, wanted)


def test_an_unknown_outcome_may_be_either_but_not_both(run: Run):
    _alter(run.evidence, 1, outcome="unknown")
    assert _broken(run, lambda evidence, history: None) == set()
    assert "nothing_doubled" in _broken(run, lambda evidence, history: history.marks["m1"].append(8))
