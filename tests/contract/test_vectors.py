"""Every conformance vector: the codes in their order, and what is left at the end, through each way to append."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from surfacelog.accept import accept
from surfacelog.errors import CODES, ContractError
from surfacelog.fold import fold
from surfacelog.header import Header
from surfacelog.records import Record
from surfacelog.session import Session
from surfacelog.state import SessionState

TIME = 1_700_000_000_000
Vector = dict[str, Any]


def _vectors() -> Iterator[Any]:
    for path in sorted((Path(__file__).parent / "vectors").glob("*.jsonl")):
        for line in path.read_bytes().split(b"\n"):
            if line:
                vector = msgspec.json.decode(line)
                yield pytest.param(vector, id=vector["id"])


VECTORS = list(_vectors())
every_vector = pytest.mark.parametrize("vector", VECTORS)


def _line(attempt: dict[str, Any], seq: int) -> bytes:
    event = {"seq": seq, "time": TIME + attempt.get("seq", seq), **attempt}
    return msgspec.json.encode(event)


def _header(vector: Vector) -> Header:
    return Header(id=vector["id"], created_at=TIME, contract=vector["contract"])


def _play(vector: Vector) -> tuple[Session, list[dict[str, Any]]]:
    session, results = Session(_header(vector)), []
    for attempt in vector["attempts"]:
        try:
            results.append({"ok": session.append_line(_line(attempt, session.next_seq))})
        except ContractError as error:
            results.append({"error": error.code})
    return session, results


def _left(session: Session) -> dict[str, Any]:
    folded = fold(session.lines, session.header.contract)
    return {
        "nodes": session.surface.nodes,
        "replaceGeneration": session.surface.replace_generation,
        "contentGeneration": session.surface.content_generation,
        "messages": [{"seq": message.seq, "message": message.value} for message in session.messages],
        "transcript": list(session.transcript),
        "replacements": [msgspec.to_builtins(replacement) for replacement in folded.replacements],
    }


def test_there_are_vectors_of_both_contracts() -> None:
    assert {vector.values[0]["contract"] for vector in VECTORS} == {"v4", "v0"}


@every_vector
def test_a_session_answers_and_ends_as_the_vector_says(vector: Vector) -> None:
    session, results = _play(vector)
    expected = vector["expect"]
    assert results == expected["results"]
    left = _left(session)
    for name in expected.keys() - {"results"}:
        # Through text, so that a tuple is a list and a frozen dict is a dict.
        assert json.loads(json.dumps(left[name])) == expected[name], name


@every_vector
def test_every_expected_code_is_registered(vector: Vector) -> None:
    assert {result["error"] for result in vector["expect"]["results"] if "error" in result} <= CODES.keys()


@every_vector
def test_the_trusted_fold_gives_the_same_bytes(vector: Vector) -> None:
    session, _ = _play(vector)
    for trusted in (True, False):
        folded = fold(session.lines, vector["contract"], trusted=trusted)
        assert folded.nodes == session.surface.nodes
        assert folded.transcript == list(session.transcript)
        assert folded.messages() == [(message.seq, message.json) for message in session.messages]
        assert folded.replace_generation == session.surface.replace_generation
        assert folded.content_generation == session.surface.content_generation


@every_vector
def test_records_are_accepted_and_rejected_with_the_same_codes(vector: Vector) -> None:
    state = SessionState()
    accept(state, Record("open", "o", _header(vector).encode()), 0)
    session = Session(_header(vector))
    for offset, (attempt, expected) in enumerate(
        zip(vector["attempts"], vector["expect"]["results"], strict=True), 1
    ):
        line = _line(attempt, state.next_seq)
        record = Record("commit", f"c{offset}", line, prev=state.chain, seq=state.next_seq)
        verdict = accept(state, record, offset)
        if "ok" in expected:
            assert (verdict.outcome, verdict.seq) == ("accepted", expected["ok"])
            session.append_line(line)
            assert [plan.message for plan in verdict.plans] == [_derived(session)]
        else:
            assert (verdict.outcome, verdict.code) == ("rejected", expected["error"])
    assert state.surface.entries == session.surface.entries
    assert state.transcript_count == len(session.transcript)


def _derived(session: Session) -> bytes | None:
    last = session.next_seq - 1
    return next((message.json for message in session.messages if message.seq == last), None)


@every_vector
def test_a_plan_taken_back_leaves_no_trace(vector: Vector) -> None:
    session = Session(_header(vector))
    for attempt in vector["attempts"]:
        line = _line(attempt, session.next_seq)
        before = _trace(session)
        with pytest.raises(ContractError):
            session.append_lines([line, b"{}"])
        assert _trace(session) == before
        try:
            session.append_line(line)
        except ContractError:
            assert _trace(session) == before


def _trace(session: Session) -> tuple[Any, ...]:
    surface = session.surface
    return (
        surface.next_seq,
        surface.nodes,
        list(surface.entries),
        surface.replace_generation,
        surface.content_generation,
        surface.message_count,
        dict(surface.open_calls),
        dict(surface.headers),
        len(session.lines),
        session.transcript,
    )
