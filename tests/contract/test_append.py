"""The append path as its callers see it, over the shipped twins."""

import asyncio

import pytest
from msgspec import Raw

from producer.append import IdempotencyKey
from surfacelog.errors import ContractError, LedgerError, ProtocolError
from surfacelog.events import Draft
from tests.contract.ledger_room import Room, T, header, note, simulated, user


async def code_of(work: object) -> str:
    return (await refused(work)).code


async def refused(work: object) -> LedgerError:
    with pytest.raises(LedgerError) as refusal:
        await work  # type: ignore[misc]
    return refusal.value


@simulated()
async def test_events_of_a_session_are_numbered_without_gaps(room: Room):
    producer = await room.producer()
    created = await producer.create(T, header("s"))
    assert created.next_seq == 0
    first = await producer.append(T, "s", [user("a")])
    second = await producer.append(T, "s", [user("b"), user("c")])
    assert (first.seq, first.count, first.next_seq) == (0, 1, 1)
    assert (second.seq, second.count, second.next_seq) == (1, 2, 3)
    state, verdicts = room.replay("s")
    assert [v.outcome for v in verdicts] == ["accepted"] * 3
    assert state.chain.hex() == second.chain
    assert verdicts[-1].offset == second.offset


@simulated()
async def test_data_is_kept_byte_for_byte(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    data = b'{"b": 1.0, "a":[9007199254740993,"\\ud800","\\u0000"], "id":"u","role":"user","content":[]}'
    await producer.append(T, "s", [Draft("x/y", Raw(data), ignorable=True, time=5)])
    assert room.lines("s") == [b'{"type":"x/y","seq":0,"time":5,"data":' + data + b',"ignorable":true}']


@simulated()
async def test_an_unknown_session_is_refused_and_nothing_is_written(room: Room):
    producer = await room.producer()
    error = await refused(producer.append(T, "nobody", [user("a")]))
    assert error.code == "no-session"
    assert room.records("nobody") == []


@simulated()
async def test_a_session_is_created_once(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    assert (await refused(producer.create(T, header("s")))).code == "session-exists"
    assert (await refused(other.create(T, header("s")))).code == "session-exists"


@simulated()
async def test_a_create_repeated_with_its_open_id_is_the_same_opening(room: Room):
    producer, other = await room.producer(), await room.producer()
    open_id = room.mint()
    first = await producer.create(T, header("s"), open_id=open_id)
    for number in range(70):
        await producer.append(T, "s", [note(str(number))])
    again = await other.create(T, header("s", title="sent again"), open_id=open_id)
    assert (again.open_id, again.offset) == (first.open_id, first.offset)
    assert room.replay("s")[0].header.title is None


@simulated()
async def test_an_event_that_breaks_a_rule_is_refused_before_it_is_written(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    bad = Draft("user/message", user("a").data)
    error = await refused(producer.append(T, "s", [user("a"), bad]))
    assert isinstance(error, ContractError)
    assert error.code == "surface-op-required"
    assert len(room.records("s")) == 1
    assert (await producer.append(T, "s", [user("b")])).seq == 0


@simulated()
async def test_an_expected_seq_that_is_not_the_head_is_a_conflict_with_the_head(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    done = await producer.append(T, "s", [user("a")], expected_seq=0)
    for writer in (producer, other):
        error = await refused(writer.append(T, "s", [user("b")], expected_seq=0))
        assert error.code == "seq-conflict"
        assert error.detail == {"next_seq": 1, "chain": done.chain}
    error = await refused(producer.append(T, "s", [user("b")], expected_seq=2))
    assert error.detail["next_seq"] == 1
    assert (await other.append(T, "s", [user("b")], expected_seq=1)).seq == 1


@simulated()
async def test_a_repeat_with_the_same_key_is_answered_with_the_first_seq(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    key = IdempotencyKey("k-1", 0)
    first = await producer.append(T, "s", [user("deploy")], key=key, expected_seq=0)
    for writer in (producer, other, await room.producer()):
        again = await writer.append(T, "s", [user("deploy", time=77)], key=key, expected_seq=0)
        assert (again.seq, again.count, again.offset) == (first.seq, first.count, first.offset)
        assert again.commit_id == first.commit_id
        assert (await refused(writer.append(T, "s", [user("destroy")], key=key))).code == "key-reused"
    assert (await producer.append(T, "s", [user("deploy")], key=IdempotencyKey("k-2"))).seq == 1


@simulated()
async def test_repeats_at_the_same_time_land_once(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    key = IdempotencyKey("k", 0)
    answers = await asyncio.gather(
        *(writer.append(T, "s", [user("once")], key=key) for writer in (producer, other) for _ in range(5))
    )
    assert {(answer.seq, answer.count) for answer in answers} == {(0, 1)}
    assert room.replay("s")[0].next_seq == 1


@simulated()
async def test_a_key_older_than_the_window_is_refused_and_never_doubled(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    await producer.append(T, "s", [note("first")], key=IdempotencyKey("first", 0))
    for number in range(256):
        await producer.append(T, "s", [note(str(number))], key=IdempotencyKey(f"k{number}", number + 1))
    error = await refused(producer.append(T, "s", [note("first")], key=IdempotencyKey("first", 0)))
    assert error.code == "key-expired"
    assert room.replay("s")[0].next_seq == 257


@simulated()
async def test_many_callers_at_once_all_find_their_event_at_the_seq_they_were_told(room: Room):
    producers = [await room.producer() for _ in range(3)]
    await producers[0].create(T, header("s"))
    names = [f"c{number}" for number in range(60)]
    answers = await asyncio.gather(
        *(producers[n % 3].append(T, "s", [user(name)]) for n, name in enumerate(names))
    )
    lines = room.lines("s")
    assert len(lines) == 60
    assert sorted(answer.seq for answer in answers) == list(range(60))
    for name, answer in zip(names, answers, strict=True):
        assert b'"id":"%s"' % name.encode() in lines[answer.seq]


@simulated()
async def test_appends_of_one_caller_keep_their_order_in_the_pipeline(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    answers = await asyncio.gather(*(producer.append(T, "s", [note(str(n))]) for n in range(200)))
    assert [answer.seq for answer in answers] == list(range(200))
    assert all(b'"text":"%d"' % n in line for n, line in enumerate(room.lines("s")))
    assert [v.outcome for v in room.replay("s")[1]] == ["accepted"] * 201


@simulated()
async def test_a_record_that_the_log_does_not_take_is_refused_and_uses_nothing_up(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    await producer.append(T, "s", [user("small")])
    error = await refused(producer.append(T, "s", [user("x" * room.topic.size_bytes_max)]))
    assert error.code == "too-large"
    assert error.detail["size_bytes"] > error.detail["size_bytes_max"] == room.topic.size_bytes_max
    assert (await producer.append(T, "s", [user("small")])).seq == 1


@simulated()
async def test_every_append_returns_when_all_notifications_are_lost(room: Room):
    room.cache.hears = lambda channel, payload: False
    producer = await room.producer(verdict_poll_ms=5, verdict_poll_max_ms=20)
    await producer.create(T, header("s"))
    answers = await asyncio.gather(*(producer.append(T, "s", [user(str(n))]) for n in range(50)))
    assert [answer.seq for answer in answers] == list(range(50))


@simulated()
async def test_a_fold_that_stands_still_leaves_the_outcome_unknown_and_tells_it_later(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    room.folding = False
    error = await refused(producer.append(T, "s", [user("a")], timeout_ms=60))
    assert error.code == "unknown-outcome"
    commit_id = error.detail["commit_id"]
    assert (await refused(producer.verdict(T, "s", commit_id, timeout_ms=30))).code == "rebuilding"
    room.folding = True
    told = await producer.verdict(T, "s", commit_id)
    assert told is not None
    assert (told.outcome, told.seq) == ("accepted", 0)
    assert await producer.verdict(T, "s", room.mint()) is None


@simulated()
async def test_no_negative_answer_is_given_from_behind_the_log(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    old = room.cache.snapshot()
    await producer.append(T, "s", [user("a")])
    room.folding = False
    await asyncio.sleep(0.01)
    room.cache.restore(old)
    wrong = (
        other.append(T, "s", [user("b")], expected_seq=1, timeout_ms=50),
        other.append(T, "s", [user("b")], expected_seq=7, timeout_ms=50),
    )
    for work in wrong:
        assert (await refused(work)).code == "rebuilding"


@simulated()
async def test_a_session_that_the_cache_lost_is_not_told_unknown(room: Room):
    producer, other = await room.producer(), await room.producer()
    empty = room.cache.snapshot()
    await producer.create(T, header("s"))
    room.folding = False
    await asyncio.sleep(0.01)
    room.cache.restore(empty)
    assert (await refused(other.append(T, "s", [user("a")], timeout_ms=50))).code == "rebuilding"
    room.folding = True
    assert (await other.append(T, "s", [user("a")])).seq == 0


@simulated()
async def test_a_claim_shuts_everybody_else_out_whichever_machine_they_use(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    held = await producer.claim(T, "s", "alice", lease_ms=1000)
    assert (held.epoch, held.fence.split(":")[:2]) == (1, ["1", "alice"])
    for writer in (producer, other):
        assert (await refused(writer.append(T, "s", [user("x")]))).code == "fenced"
        assert (await refused(writer.claim(T, "s", "bob"))).code == "fenced"
    assert (await other.append(T, "s", [user("a")], fence=held.fence)).seq == 0
    taken = await other.claim(T, "s", "bob", takeover=True)
    assert taken.epoch == 2
    error = await refused(producer.append(T, "s", [user("b")], fence=held.fence))
    assert error.code == "fenced"
    assert error.detail == {"owner": "bob", "epoch": 2}
    await other.release(T, "s", taken.fence)
    await producer.release(T, "s", taken.fence)
    assert (await producer.append(T, "s", [user("c")])).seq == 1


@simulated()
async def test_a_later_run_of_the_same_owner_supersedes_the_earlier(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    first = await producer.claim(T, "s", "alice")
    second = await producer.claim(T, "s", "alice")
    assert (await refused(producer.append(T, "s", [user("x")], fence=first.fence))).code == "fenced"
    assert (await refused(producer.release(T, "s", first.fence))).code == "fenced"
    assert (await producer.append(T, "s", [user("x")], fence=second.fence)).seq == 0


@simulated()
async def test_a_deleted_session_is_gone_and_its_id_is_never_used_again(room: Room):
    producer, other = await room.producer(), await room.producer()
    await producer.create(T, header("s"))
    await producer.append(T, "s", [user("a")])
    await producer.delete(T, "s")
    for writer in (producer, other):
        assert (await refused(writer.append(T, "s", [user("b")]))).code == "gone"
        assert (await refused(writer.create(T, header("s")))).code == "gone"
        assert (await refused(writer.delete(T, "s"))).code == "gone"


@simulated()
async def test_a_logged_append_is_answered_before_the_fold(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    room.folding = False
    done = await producer.append(T, "s", [note("a")], ack="logged", timeout_ms=2000)
    assert done.provisional
    assert done.seq == 0
    room.folding = True
    assert (await producer.append(T, "s", [note("b")])).seq == 1
    assert len(room.lines("s")) == 2


@pytest.mark.parametrize(
    "wrong", [{"expected_seq": -1}, {"key": IdempotencyKey("")}, {"key": IdempotencyKey("k", -1)}]
)
@simulated()
async def test_a_request_that_makes_no_sense_is_refused(room: Room, wrong: dict[str, object]):
    producer = await room.producer()
    assert (await refused(producer.append(T, "s", [user("a")], **wrong))).code == "bad-request"  # type: ignore[arg-type]
    with pytest.raises(ProtocolError):
        await producer.append(T, "s", [])


@simulated()
async def test_writers_of_idle_sessions_are_dropped_and_come_back(room: Room):
    producer = await room.producer(append_writers_max=10)
    for number in range(40):
        await producer.create(T, header(f"s{number}"))
        await producer.append(T, f"s{number}", [note("a")])
    await asyncio.sleep(5)
    assert producer.sessions <= 10
    assert [(await producer.append(T, f"s{number}", [note("b")])).seq for number in range(40)] == [1] * 40


@simulated()
async def test_states_in_memory_are_bounded_by_their_nodes_too(room: Room):
    producer = await room.producer(append_nodes_max=100)
    for number in range(10):
        await producer.create(T, header(f"s{number}"))
        await producer.append(T, f"s{number}", [user(str(n)) for n in range(40)])
    await asyncio.sleep(5)
    assert producer.sessions <= 3


@simulated()
async def test_a_lock_that_nobody_uses_is_handed_over_at_once(room: Room):
    producers = [await room.producer(), await room.producer()]
    await producers[0].create(T, header("s"))
    for number in range(10):
        started = asyncio.get_running_loop().time()
        await producers[number % 2].append(T, "s", [note(str(number))])
        assert asyncio.get_running_loop().time() - started < 0.1
    assert all(verdict.outcome == "accepted" for verdict in room.replay("s")[1]), "they collided"


@simulated()
async def test_two_busy_writers_of_one_session_both_go_on(room: Room):
    producers = [await room.producer(), await room.producer()]
    await producers[0].create(T, header("s"))
    done = [0, 0]
    slowest = [0.0, 0.0]
    clock = asyncio.get_running_loop().time

    async def client(which: int) -> None:
        while clock() < 5:
            started = clock()
            await producers[which].append(T, "s", [note(str(which))])
            slowest[which] = max(slowest[which], clock() - started)
            done[which] += 1
            await asyncio.sleep(0.01)

    await asyncio.gather(*(client(which) for which in (0, 1) for _ in range(4)))
    assert min(done) > max(done) / 4
    assert max(slowest) < 1.5
    assert all(verdict.outcome == "accepted" for verdict in room.replay("s")[1]), "they collided"


@simulated()
async def test_closing_answers_everybody(room: Room):
    producer = await room.producer()
    await producer.create(T, header("s"))
    room.folding = False
    sent = [asyncio.ensure_future(producer.append(T, "s", [note(str(n))], timeout_ms=60_000)) for n in range(40)]
    await asyncio.sleep(0.1)
    started = asyncio.get_running_loop().time()
    await producer.close()
    assert asyncio.get_running_loop().time() - started < 10
    codes = [await code_of(work) for work in sent]
    assert set(codes[:32]) == {"unknown-outcome"}, "these were handed to the log"
    assert set(codes[32:]) == {"overloaded"}, "these were not"
    assert await code_of(producer.append(T, "s", [note()])) == "unavailable"


@simulated()
async def test_what_one_process_holds_is_bounded(room: Room):
    producer = await room.producer(append_commits_max=5)
    await producer.create(T, header("s"))
    room.folding = False
    sent = [asyncio.ensure_future(producer.append(T, "s", [note(str(n))], timeout_ms=500)) for n in range(20)]
    codes = [await code_of(work) for work in sent]
    assert codes.count("unknown-outcome") == 5
    assert codes.count("overloaded") == 15
    assert len(room.records("s")) == 6
    room.folding = True
    assert (await producer.append(T, "s", [note()])).seq == 5
