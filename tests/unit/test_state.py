"""The windows of a session: exactly what is kept, and for how long."""

import json

import msgspec

from surfacelog.accept import preview
from surfacelog.claim import Claim
from surfacelog.records import KeyClaim
from surfacelog.snapshot import pieces, restore
from surfacelog.state import KEYS_MAX, RECENT_MAX, SETTLED_MAX, Changes
from tests.unit.acts import log, said, user
from tests.unit.records_room import Writer, opened


def test_the_windows_are_those_of_the_first_rules() -> None:
    assert (SETTLED_MAX, RECENT_MAX, KEYS_MAX) == (64, 256, 256)


def test_settled_verdicts_are_kept_newest_first() -> None:
    writer = opened()
    made = [writer.commit() for _ in range(1)]
    writer.put(made[0])
    for _ in range(100):
        record = writer.commit()
        made.append(record)
        writer.put(record)
    assert list(writer.state.recent) == [record.id for record in made[-64:]]


def test_a_rejection_is_kept_while_it_could_still_fit() -> None:
    writer = opened()
    far = writer.commit(seq=80)
    writer.put(far)
    for seq in range(80):
        assert far.id in writer.state.recent, seq
        writer.put(writer.commit())
    assert writer.state.next_seq == 80
    assert far.id in writer.state.recent
    assert writer.put(far).first == "rejected"
    writer.put(writer.commit())
    assert far.id not in writer.state.recent
    assert writer.put(far).code == "seq-conflict"


def test_a_rejection_below_the_head_counts_among_the_newest() -> None:
    writer = opened()
    writer.put(writer.commit())
    late = writer.commit(seq=0)
    writer.put(late)
    for _ in range(63):
        writer.put(writer.commit())
    assert late.id in writer.state.recent
    writer.put(writer.commit())
    assert late.id not in writer.state.recent


def test_a_claim_told_no_stays_so_until_its_epoch_is_gone() -> None:
    writer = opened()
    ahead, next_one = writer.claim("me", 2), writer.claim("me", 3)
    for record in (ahead, next_one):
        assert writer.put(record).code == "stale-claim"
    for _ in range(100):
        writer.put(writer.release(fence="0:nobody:x"))
    assert writer.put(writer.claim("other")).outcome == "accepted"
    assert writer.put(ahead).first == "rejected"
    assert writer.put(writer.claim("third")).outcome == "accepted"
    assert ahead.id not in writer.state.recent
    assert writer.put(ahead).code == "stale-claim"
    assert writer.put(next_one).first == "rejected"
    assert writer.state.claim.owner == "third"


def test_a_release_told_no_stays_so_until_its_epoch_is_gone() -> None:
    writer = opened()
    claim = writer.claim("me")
    early = writer.release(fence=f"1:me:{json.loads(claim.value)['claim']}")
    assert writer.put(early).code == "fenced"
    for _ in range(100):
        writer.put(writer.release(fence="0:nobody:x"))
    assert writer.put(claim).outcome == "accepted"
    assert writer.put(early).outcome != "accepted"
    assert writer.state.claim.owner == "me"


def test_a_claim_below_the_present_epoch_counts_among_the_newest() -> None:
    writer = opened()
    writer.put(writer.claim("me"))
    stale = writer.claim("other", 1)
    writer.put(stale)
    for _ in range(64):
        assert stale.id in writer.state.recent
        writer.put(writer.commit())
    assert stale.id not in writer.state.recent
    assert writer.put(stale).code == "stale-claim"


def test_what_was_refused_before_an_overflow_never_fits_behind_it() -> None:
    writer = opened()
    claim = writer.claim("me", 2)
    writer.put(claim)
    held = writer.claim("you")
    writer.put(held)
    release = writer.release(fence="3:z:y")
    writer.put(release)
    while writer.state.recent:
        writer.put(writer.commit(seq=900))
    assert not writer.state.refused
    assert writer.put(claim).code == "chain-conflict"
    # Made anew by the same run, with the same claim id, that claim stands; a release refused before does not.
    assert writer.put(writer.claim("x", 2)).outcome == "accepted"
    again = Claim(3, "z", "y")
    assert writer.put(writer.claim("z", value=msgspec.json.encode(again))).outcome == "accepted"
    assert writer.state.fence == "3:z:y"
    assert writer.put(release).code == "chain-conflict"
    assert writer.put(writer.release()).outcome == "accepted"


def test_a_claim_made_before_the_open_never_fits() -> None:
    writer = Writer()
    early = writer.claim("me")
    assert writer.put(early).code == "no-session"
    writer.put(writer.open())
    assert writer.put(early).code == "chain-conflict"
    assert writer.put(writer.claim("me")).outcome == "accepted"


def test_the_told_chain_is_the_head_also_where_the_windows_overflow() -> None:
    writer = opened()
    while len(writer.state.refused) < 250:
        writer.put(writer.commit(seq=900))
    foreseen = restore(pieces(writer.state))
    overflows = 0
    for _ in range(20):
        record = writer.commit()
        planned, told = preview(foreseen, record), writer.put(record)
        assert told.outcome == "accepted"
        assert (told.chain, told.next_seq) == (writer.state.chain, writer.state.next_seq)
        if not planned.chain:
            # Nobody knows the offset before: a writer that plans ahead has to wait here.
            overflows += 1
            assert writer.state.recent == foreseen.recent == {}
            assert preview(foreseen, writer.commit(prev=b"")).code == "chain-conflict"
            assert preview(foreseen, writer.claim("me", prev=b"")).code == "chain-conflict"
            break
        assert planned.chain == told.chain
    assert overflows == 1


def test_too_many_kept_ids_are_dropped_with_a_chain_that_nothing_in_flight_fits() -> None:
    writer = opened()
    in_flight = writer.commit()
    state = writer.state
    refused = []
    while len(state.recent) < RECENT_MAX:
        refused.append(writer.commit(seq=900))
        writer.put(refused[-1])
    chain = state.chain
    last = writer.commit(seq=900)
    writer.put(last)
    assert state.recent == {}
    assert not state.refused
    assert not state.settled
    assert state.chain != chain
    assert writer.put(in_flight).code == "chain-conflict"
    # The same overflow at another place gives another chain.
    other = opened()
    other.offset += 1
    for record in [*refused, last]:
        other.put(record)
    assert other.state.recent == {}
    assert other.state.chain != state.chain
    assert writer.put(writer.commit()).outcome == "accepted"


def test_keys_are_kept_newest_with_a_floor() -> None:
    writer = opened()
    for number in range(300):
        writer.put(writer.commit(key=KeyClaim(f"k{number}", "r", 0 if number == 0 else number)))
    assert list(writer.state.keys) == [f"k{number}" for number in range(44, 300)]
    assert writer.state.keys_floor == 44


def test_a_commit_of_many_events_lifts_the_floor_past_all_of_them() -> None:
    writer = opened()
    writer.put(writer.commit(*[log("turn/end")] * 5, key=KeyClaim("big", "r", 0)))
    for number in range(256):
        writer.put(writer.commit(key=KeyClaim(f"k{number}", "r", writer.state.next_seq)))
    assert writer.state.keys_floor == 5
    assert writer.put(writer.commit(key=KeyClaim("big", "r", 0))).code == "key-expired"


def test_changes_are_what_the_windows_differ_by() -> None:
    writer = opened()
    state = writer.state
    state.changes = Changes()
    recent, keys = dict(state.recent), dict(state.keys)
    for number in range(700):
        seq = state.next_seq + (7 if number % 3 == 0 else 0)
        writer.put(writer.commit(seq=seq, key=KeyClaim(f"k{number}", "r", seq)))
        if number % 11 == 0:
            changes = state.drain()
            for name in changes.recent_gone:
                recent.pop(name, None)
            recent.update({name: verdict for name, (_, verdict) in changes.recent.items()})
            for name in changes.keys_gone:
                keys.pop(name, None)
            keys.update(changes.keys)
            assert recent == state.recent
            assert keys == dict(state.keys)
            assert not changes.recent.keys() & changes.recent_gone
            assert not changes.keys.keys() & changes.keys_gone


def test_an_id_and_a_key_that_come_anew_and_go_again_are_told_as_gone() -> None:
    writer = opened()
    state = writer.state
    writer.put(writer.commit(id="x", key=KeyClaim("y", "r", 0)))
    state.changes = Changes()
    for _ in range(2):
        for number in range(256):
            writer.put(writer.commit(key=KeyClaim(f"k{number}", "r", state.next_seq)))
        assert "x" not in state.recent
        assert "y" not in state.keys
        assert state.changes.recent_gone >= {"x"}
        assert state.changes.keys_gone >= {"y"}
        writer.put(writer.commit(id="x", key=KeyClaim("y", "r", state.next_seq)))
        assert "x" in state.changes.recent
        assert "y" in state.changes.keys
        assert not {"x", "y"} & (state.changes.recent_gone | state.changes.keys_gone)


def test_what_comes_and_goes_between_two_drains_is_never_told() -> None:
    writer = opened()
    writer.state.changes = Changes()
    for _ in range(200):
        writer.put(writer.commit())
    changes = writer.state.drain()
    assert changes.recent.keys() == writer.state.recent.keys()
    assert changes.recent_gone == {"open-1"}


def test_changes_hold_every_plan_line_and_commit_once() -> None:
    writer = opened()
    writer.state.changes = Changes()
    writer.put(writer.commit(user(said("a")), log("turn/end")))
    writer.put(writer.commit(seq=9))
    writer.put(writer.commit(user(said("b"), over=(0, 0))))
    changes = writer.state.drain()
    assert [plan.seq for plan in changes.plans] == [0, 1, 2]
    assert len(changes.lines) == 3
    assert changes.transcript == [0]
    assert changes.commits == [(0, 1), (2, 3)]
    assert writer.state.drain().plans == []
