"""The windows of a session: exactly what is kept, and for how long."""

from surfacelog.records import KeyClaim
from surfacelog.state import KEYS_MAX, RECENT_MAX, SETTLED_MAX, Changes
from tests.unit.acts import log, said, user
from tests.unit.records_room import opened


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


def test_a_rejected_claim_counts_among_the_newest() -> None:
    writer = opened()
    stale = writer.claim("me", 9)
    writer.put(stale)
    for _ in range(64):
        assert stale.id in writer.state.recent
        writer.put(writer.commit())
    assert stale.id not in writer.state.recent


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
