"""The decision of the protocol, rule by rule and in the order of the rules."""

import pytest

from surfacelog.accept import EVENTS_MAX, accept, preview
from surfacelog.errors import LedgerError
from surfacelog.records import KeyClaim, Record, chain_next, chain_start
from surfacelog.session import draft
from surfacelog.snapshot import pieces
from surfacelog.state import SessionState
from tests.unit.acts import assistant, log, result, said, user
from tests.unit.records_room import Writer, opened


def code(writer: Writer, record: Record | None) -> str:
    """The code of a rejection; a rejected record changes nothing but what is remembered of it."""
    state = writer.state
    before = (state.status, state.chain, state.fence, state.next_seq, state.accepted, dict(state.keys))
    verdict = writer.put(record)
    assert verdict.outcome == "rejected"
    assert not verdict.landed
    assert before == (state.status, state.chain, state.fence, state.next_seq, state.accepted, dict(state.keys))
    return verdict.code


def key(name: str = "k", request: str = "r", since: int = 0) -> KeyClaim:
    return KeyClaim(name, request, since)


def test_an_open_starts_a_session_and_its_chain() -> None:
    writer = Writer()
    record = writer.open()
    verdict = writer.put(record)
    assert (verdict.outcome, verdict.seq, verdict.count, verdict.offset) == ("accepted", 0, 0, 0)
    assert writer.state.chain == chain_start(record.id, record.value) == verdict.chain
    assert writer.state.fence == "0:"


def test_a_commit_moves_head_and_chain() -> None:
    writer = opened()
    chain = writer.state.chain
    record = writer.commit(user(said("a")), log("turn/end"))
    verdict = writer.put(record)
    assert (verdict.outcome, verdict.seq, verdict.count, verdict.next_seq) == ("accepted", 0, 2, 2)
    assert verdict.chain == writer.state.chain == chain_next(chain, record)
    assert [plan.op for plan in verdict.plans] == ["append", "log"]
    assert writer.state.transcript_count == 1


@pytest.mark.parametrize("make", ["open", "commit", "claim", "release", "delete"])
def test_every_kind_of_record_is_answered_once(make: str) -> None:
    writer = Writer() if make == "open" else opened()
    if make == "release":
        writer.put(writer.claim("me"))
    record = writer.claim("me") if make == "claim" else getattr(writer, make)()
    first = writer.put(record)
    again = writer.put(record)
    assert first.outcome == "accepted"
    assert (again.outcome, again.first, again.seq, again.offset) == (
        "duplicate",
        "accepted",
        first.seq,
        first.offset,
    )
    assert again.landed
    assert writer.put(record).first == "accepted"


def test_a_rejected_id_stays_rejected_even_if_it_would_fit_now() -> None:
    writer = opened()
    early = writer.commit(seq=1, prev=chain_next(writer.state.chain, writer.commit(id="c")))
    assert code(writer, early) == "seq-conflict"
    writer.put(writer.commit(id="c"))
    again = writer.put(early)
    assert (again.outcome, again.first, again.code) == ("duplicate", "rejected", "seq-conflict")
    assert not again.landed
    assert writer.state.next_seq == 1


def test_what_cannot_be_read_is_malformed_and_counted() -> None:
    writer = opened()
    assert code(writer, None) == "malformed"
    for record in (
        writer.commit(value=b""),
        writer.commit(value=b"\n"),
        writer.commit(value=b"{}"),
        writer.commit(value=b"\xff"),
        writer.commit(value=None),
        writer.commit(seq=-1),
        writer.commit(kind="other"),
        writer.commit(id=""),
        writer.commit(v=0),
        writer.claim("", epoch=1),
        writer.claim("me", epoch=0),
        writer.claim("x" * 300),
        Record("claim", "c-x", b"[" * 2000),
        writer.commit(*[log("turn/end")] * 2, value=b"\n".join([b"{}"] * (EVENTS_MAX + 1))),
    ):
        record = Record(
            **{**{f: getattr(record, f) for f in record.__struct_fields__}, "value": record.value or b""}
        )
        assert code(writer, record) == "malformed"
    assert writer.state.rejected == {"malformed": 15}
    assert code(Writer(), Writer().open(value=b"{}")) == "malformed"


def test_what_cannot_be_read_is_malformed_wherever_it_lies() -> None:
    absent, present, gone = Writer(), opened(), opened()
    gone.put(gone.delete())
    for writer in (absent, present, gone):
        for junk in (
            writer.open(value=b"junk"),
            writer.commit(value=b"junk"),
            writer.claim("me", value=b"junk"),
        ):
            assert code(writer, junk) == "malformed"


def test_a_session_header_is_small_and_its_numbers_too() -> None:
    for header in (
        b'{"id":"s","createdAt":0,"title":"%b"}' % (b"x" * 70_000),
        b'{"id":"s","createdAt":%d}' % 2**70,
        b'{"id":"s","createdAt":0,"delegationDepth":%d}' % 2**70,
    ):
        assert code(Writer(), Writer().open(value=header)) == "malformed"
    for claim in (
        b'{"epoch":1,"owner":"a","claim":"c","leaseMs":%d}' % 2**70,
        b'{"epoch":%d,"owner":"a","claim":"c"}' % 2**70,
        b'{"epoch":1,"owner":"a","claim":"%b"}' % (b"c" * 300),
    ):
        assert code(opened(), opened().claim("me", value=claim)) == "malformed"


def test_an_unknown_version_parks_the_session_instead_of_guessing() -> None:
    writer = opened()
    with pytest.raises(LedgerError, match="faulted"):
        writer.put(writer.commit(v=2))


@pytest.mark.parametrize("make", ["commit", "claim", "release", "delete"])
def test_nothing_but_an_open_is_taken_where_no_session_is(make: str) -> None:
    writer = Writer()
    record = writer.claim("me") if make == "claim" else getattr(writer, make)()
    assert code(writer, record) == "no-session"


def test_an_id_is_used_once_and_never_again() -> None:
    writer = opened()
    assert code(writer, writer.open()) == "session-exists"
    assert code(writer, writer.delete(value=b"another")) == "no-session"
    writer.put(writer.commit())
    assert writer.put(writer.delete()).outcome == "accepted"
    assert writer.state.status == "deleted"
    assert writer.state.surface.nodes == []
    for record in (writer.open(), writer.commit(), writer.claim("me"), writer.release(), writer.delete()):
        assert code(writer, record) == "gone"


def test_a_claim_needs_exactly_the_next_epoch() -> None:
    writer = opened()
    for epoch in (2, 7):
        assert code(writer, writer.claim("me", epoch)) == "stale-claim"
    assert writer.put(writer.claim("me")).outcome == "accepted"
    assert code(writer, writer.claim("other", 1)) == "stale-claim"
    assert writer.put(writer.claim("other", 2)).outcome == "accepted"
    assert writer.state.fence.startswith("2:other:")


def test_only_the_present_fence_passes() -> None:
    writer = opened()
    unclaimed = writer.commit()
    writer.put(writer.claim("me"))
    mine = writer.state.fence
    assert code(writer, unclaimed) == "fenced"
    # A head read anew does not help a writer that holds no claim.
    assert code(writer, writer.commit(fence="0:")) == "fenced"
    assert writer.put(writer.commit()).outcome == "accepted"
    writer.put(writer.claim("other"))
    assert code(writer, writer.commit(fence=mine)) == "fenced"
    assert code(writer, writer.release(fence=mine)) == "fenced"
    assert writer.put(writer.release()).outcome == "accepted"
    assert writer.state.fence == "2:"
    assert code(writer, writer.release()) == "fenced"
    assert code(writer, writer.commit(fence="0:")) == "fenced"
    assert writer.put(writer.commit()).outcome == "accepted"


def test_a_fork_takes_only_its_own_copy_until_it_is_whole() -> None:
    writer = opened(inherited_event_count=2)
    assert writer.state.forking
    assert code(writer, writer.commit(fence="0:")) == "fenced"
    assert code(writer, writer.claim("me")) == "stale-claim"
    assert code(writer, writer.release()) == "fenced"
    assert writer.put(writer.commit(log("turn/start"), log("turn/end"))).outcome == "accepted"
    assert not writer.state.forking
    assert writer.put(writer.claim("me")).outcome == "accepted"


def test_a_commit_never_waits_for_a_gap_and_never_joins_another_history() -> None:
    writer = opened()
    late = writer.commit()
    writer.put(writer.commit())
    assert code(writer, late) == "seq-conflict"
    assert code(writer, writer.commit(seq=2)) == "seq-conflict"
    assert code(writer, writer.commit(prev=b"\0" * 32)) == "chain-conflict"
    assert code(writer, writer.commit(prev=b"")) == "chain-conflict"


def test_a_commit_is_taken_whole_or_not_at_all() -> None:
    writer = opened(checks="paired")
    writer.put(writer.commit(user(said("u"))))
    before = pieces(writer.state).surface
    broken = writer.commit(assistant("a"), user(said("s"), over=(0, 0)), result("a"), result("a"))
    assert code(writer, broken) == "call-unknown"
    assert pieces(writer.state).surface == before
    assert writer.state.surface.content_generation == 0
    assert writer.state.transcript_count == 1


def test_an_idempotency_key_is_answered_before_anything_that_a_repeat_would_fail() -> None:
    writer = opened()
    first = writer.put(writer.commit(user(said("u")), log("turn/end"), key=key()))
    writer.put(writer.claim("other"))
    again = writer.put(writer.commit(fence="0:", seq=0, prev=b"", key=key()))
    assert (again.outcome, again.first, again.seq, again.count, again.offset) == (
        "duplicate",
        "accepted",
        0,
        2,
        first.offset,
    )
    assert again.landed
    assert again.next_seq == writer.state.next_seq == 2
    assert code(writer, writer.commit(key=key(request="other"))) == "key-reused"


def test_a_repeat_of_a_repeat_still_landed() -> None:
    writer = opened()
    writer.put(writer.commit(key=key()))
    repeat = writer.commit(key=key())
    assert writer.put(repeat).landed
    assert writer.put(repeat).landed


def test_a_rejected_commit_uses_no_key() -> None:
    writer = opened()
    assert code(writer, writer.commit(seq=5, key=key())) == "seq-conflict"
    assert writer.put(writer.commit(key=key(request="other"))).outcome == "accepted"


def test_a_key_from_before_the_window_is_refused_not_guessed() -> None:
    writer = opened()
    for number in range(258):
        writer.put(writer.commit(key=key(f"k{number}", since=number)))
    assert writer.state.keys_floor == 2
    assert code(writer, writer.commit(key=key("k1", since=1))) == "key-expired"
    assert writer.put(writer.commit(key=key("k2", since=2))).outcome == "duplicate"
    assert writer.put(writer.commit(key=key("new", since=2))).outcome == "accepted"


def test_preview_moves_on_when_accepted_and_leaves_no_trace_otherwise() -> None:
    writer, other = opened(), opened()
    before = pieces(writer.state)
    assert preview(writer.state, writer.commit(seq=3)).code == "seq-conflict"
    assert pieces(writer.state) == before
    record = writer.commit(key=key())
    foreseen = preview(writer.state, record)
    told = other.put(record)
    assert (foreseen.outcome, foreseen.seq, foreseen.chain) == (told.outcome, told.seq, told.chain)
    assert preview(writer.state, record).first == "accepted"
    assert preview(writer.state, writer.commit(key=key())).outcome == "duplicate"
    assert writer.state.next_seq == other.state.next_seq


def test_the_last_offset_is_remembered_whatever_the_verdict() -> None:
    state = SessionState()
    for offset, record in ((3, None), (5, Writer().commit()), (9, Writer().open())):
        accept(state, record, offset)
        assert state.last == offset
    assert state.first_offset == 9


def test_a_long_name_makes_no_long_verdict() -> None:
    writer = opened()
    record = writer.commit(draft("x" * 100_000, 1))
    assert code(writer, record) == "type-unknown"
    assert len(writer.state.recent[record.id].message) <= 400
