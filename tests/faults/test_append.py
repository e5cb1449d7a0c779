"""What the append path does when things go wrong: each fault is planted in the twins and seen to have happened."""

import asyncio
import itertools
from collections.abc import Callable

import pytest

from producer.append import Appended, IdempotencyKey
from producer.log import Unavailable
from producer.memory_log import ProduceFault
from surfacelog.errors import LedgerError
from tests.contract.ledger_room import Room, T, header, note, simulated

Headers = list[tuple[str, bytes]]


class Weather:
    """A network whose next produced records meet the planted fates, in order; `closed` lets nothing through."""

    def __init__(self, *fates: ProduceFault) -> None:
        self.fates = list(fates)
        self.closed = False
        self.met = 0
        self.produced = 0
        self.only: Callable[[bytes], bool] = lambda value: True

    def produce(self, partition: int, key: bytes, headers: Headers, value: bytes) -> ProduceFault:
        self.produced += 1
        if self.closed:
            self.met += 1
            return ProduceFault("unavailable")
        if self.fates and self.only(value):
            self.met += 1
            return self.fates.pop(0)
        return ProduceFault()

    def call(self, name: str) -> float:
        if self.closed:
            raise Unavailable("planted")
        return 0


async def code_of(work: object) -> str:
    with pytest.raises(LedgerError) as refusal:
        await work  # type: ignore[misc]
    return refusal.value.code


def without_lock(room: Room) -> None:
    """Every lock is lost as soon as it is taken: nothing keeps writers from colliding."""

    async def lose(name: str) -> None:
        if name == "acquire":
            for key in room.cache.data.keys():
                if key.endswith(b":lock"):
                    room.cache.data.call("DEL", key)

    room.cache.after = lose


def contiguous(room: Room, answers: list[Appended], names: list[str]) -> None:
    """Every answer is true, and the history holds nothing else."""
    lines = room.lines("s")
    assert sorted(answer.seq for answer in answers) == list(range(len(lines)))
    for name, answer in zip(names, answers, strict=True):
        assert b'"text":"%s"' % name.encode() in lines[answer.seq]


@simulated()
async def test_writers_without_a_lock_collide_and_every_answer_is_still_true(room: Room):
    await (await room.producer()).create(T, header("s"))
    without_lock(room)
    producers = [await room.producer(append_attempts_max=100) for _ in range(3)]
    names = [f"n{number}" for number in range(90)]
    answers = await asyncio.gather(
        *(producers[number % 3].append(T, "s", [note(name)]) for number, name in enumerate(names))
    )
    contiguous(room, answers, names)
    rejected = [v for v in room.replay("s")[1] if v.outcome == "rejected"]
    assert rejected, "no two writers ever met: the fault did not happen"
    assert {v.code for v in rejected} <= {"seq-conflict", "chain-conflict"}


@simulated()
async def test_a_collision_with_an_expected_seq_is_told_and_without_one_is_tried_again(room: Room):
    await (await room.producer()).create(T, header("s"))
    without_lock(room)
    one, two = await room.producer(lock_linger_ms=0), await room.producer(lock_linger_ms=0)
    await one.append(T, "s", [note("warm")])
    await two.append(T, "s", [note("warm")])
    done = await asyncio.gather(
        one.append(T, "s", [note("a")], expected_seq=2),
        two.append(T, "s", [note("b")], expected_seq=2),
        return_exceptions=True,
    )
    lost = [answer for answer in done if isinstance(answer, LedgerError)]
    assert [error.code for error in lost] == ["seq-conflict"]
    assert lost[0].detail["next_seq"] == 3
    assert any(v.outcome == "rejected" for v in room.replay("s")[1]), "they never met in the log"


@simulated()
async def test_what_is_behind_a_rejected_commit_is_planned_anew_in_order(room: Room):
    await (await room.producer()).create(T, header("s"))
    without_lock(room)
    one, two = await room.producer(), await room.producer()
    await one.append(T, "s", [note("warm")])
    intruder = asyncio.ensure_future(two.append(T, "s", [note("intruder")]))
    answers = await asyncio.gather(*(one.append(T, "s", [note(f"n{n}")]) for n in range(30)))
    await intruder
    seqs = [answer.seq for answer in answers]
    assert seqs == sorted(seqs)
    assert len(room.lines("s")) == 32
    assert any(v.outcome == "rejected" for v in room.replay("s")[1]), "nothing was rejected"


@simulated()
async def test_an_unknown_outcome_that_landed_is_found_and_answered(room: Room):
    await (await room.producer()).create(T, header("s"))
    weather = Weather(ProduceFault("unknown", land_ms=20))
    producer = await room.producer(weather)
    done = await producer.append(T, "s", [note("a")])
    assert (done.seq, weather.met) == (0, 1)
    assert len(room.lines("s")) == 1


@simulated()
async def test_an_unknown_outcome_that_never_landed_is_told_as_unknown_and_never_sent_again(room: Room):
    await (await room.producer()).create(T, header("s"))
    weather = Weather(ProduceFault("unknown", copies=0))
    producer = await room.producer(weather)
    assert await code_of(producer.append(T, "s", [note("a")], timeout_ms=300)) == "unknown-outcome"
    assert len(room.records("s")) == 1
    assert (await producer.append(T, "s", [note("b")])).seq == 0
    assert len(room.lines("s")) == 1


@simulated()
async def test_others_go_on_past_an_unknown_outcome_and_the_log_refuses_it_when_it_lands(room: Room):
    await (await room.producer()).create(T, header("s"))
    weather = Weather(ProduceFault("unknown", land_ms=400))
    late, other = await room.producer(weather), await room.producer()
    assert await code_of(late.append(T, "s", [note("late")], timeout_ms=50)) == "unknown-outcome"
    assert (await other.append(T, "s", [note("b")])).seq == 0
    assert (await late.append(T, "s", [note("c")])).seq == 1
    await asyncio.sleep(0.5)
    assert [v.outcome for v in room.replay("s")[1]].count("rejected") == 1, "it never landed"
    assert not any(b'"late"' in line for line in room.lines("s"))


@simulated()
async def test_a_lock_is_given_up_even_while_something_in_flight_is_never_settled(room: Room):
    await (await room.producer()).create(T, header("s"))
    weather = Weather(ProduceFault("unknown", land_ms=3000))
    stuck, other = await room.producer(weather), await room.producer()
    waiting = asyncio.ensure_future(stuck.append(T, "s", [note("stuck")], timeout_ms=5000))
    await asyncio.sleep(0.02)
    started = asyncio.get_running_loop().time()
    assert (await other.append(T, "s", [note("b")], timeout_ms=2000)).seq == 0
    assert asyncio.get_running_loop().time() - started < 1
    assert (await waiting).seq == 1


@simulated()
async def test_a_repeat_by_key_after_an_unknown_outcome_is_one_event(room: Room):
    await (await room.producer()).create(T, header("s"))
    key = IdempotencyKey("k", 0)
    for number, copies in enumerate((1, 0)):
        weather = Weather(ProduceFault("unknown", copies=copies, land_ms=150))
        first, second = await room.producer(weather), await room.producer()
        key = IdempotencyKey(f"k{number}", number)
        assert await code_of(first.append(T, "s", [note(key.key)], key=key, timeout_ms=100)) == "unknown-outcome"
        again = await second.append(T, "s", [note(key.key)], key=key)
        await asyncio.sleep(0.2)
        assert (await first.append(T, "s", [note(key.key)], key=key)).seq == again.seq == number
    assert len(room.lines("s")) == 2


@simulated()
async def test_a_second_copy_changes_nothing(room: Room):
    await (await room.producer()).create(T, header("s"))
    twice = ProduceFault(copies=2, again_ms=5)
    producer = await room.producer(Weather(*[twice] * 20))
    answers = await asyncio.gather(*(producer.append(T, "s", [note(f"n{n}")]) for n in range(20)))
    await asyncio.sleep(0.05)
    contiguous(room, answers, [f"n{n}" for n in range(20)])
    assert sum(v.outcome == "duplicate" for v in room.replay("s")[1]) == 20


@simulated()
async def test_a_late_refusal_of_a_second_copy_is_not_believed(room: Room):
    await (await room.producer()).create(T, header("s"))
    """The first copy's verdict is lost and forgotten before the second copy is refused."""
    deaf = {"on": True}
    weather = Weather(ProduceFault("unknown", copies=2, again_ms=300))
    slow = await room.producer(weather, verdict_poll_ms=100_000)
    reply = slow.reply.encode()
    room.cache.hears = lambda channel, payload: not (deaf["on"] and channel.endswith(reply))
    waiting = asyncio.ensure_future(slow.append(T, "s", [note("first")], timeout_ms=5000))
    await asyncio.sleep(0.05)
    other = await room.producer()
    without_lock(room)
    for number in range(70):
        await other.append(T, "s", [note(f"n{number}")])
    deaf["on"] = False
    done = await waiting
    assert done.seq == 0
    assert sum(b'"first"' in line for line in room.lines("s")) == 1
    codes = [(v.outcome, v.code) for v in room.replay("s")[1]]
    assert ("rejected", "seq-conflict") in codes, "the second copy was never refused"


@simulated()
async def test_a_log_that_is_away_is_told_within_the_deadline_and_comes_back_by_itself(room: Room):
    await (await room.producer()).create(T, header("s"))
    weather = Weather()
    producer = await room.producer(weather)
    await producer.append(T, "s", [note("a")])
    weather.closed = True
    started = asyncio.get_running_loop().time()
    assert await code_of(producer.append(T, "s", [note("b")], timeout_ms=300)) == "unavailable"
    assert asyncio.get_running_loop().time() - started < 0.5
    waiting = asyncio.ensure_future(producer.append(T, "s", [note("c")], timeout_ms=3000))
    await asyncio.sleep(0.1)
    weather.closed = False
    assert (await waiting).seq == 1
    assert weather.met >= 2


@simulated()
async def test_a_cache_that_is_away_is_told_within_the_deadline_and_comes_back_by_itself(room: Room):
    await (await room.producer()).create(T, header("s"))
    producer = await room.producer()
    room.cache.available = False
    assert await code_of(producer.append(T, "s", [note("b")], timeout_ms=250)) == "unavailable"
    waiting = asyncio.ensure_future(producer.append(T, "s", [note("c")], timeout_ms=3000))
    await asyncio.sleep(0.1)
    room.cache.available = True
    assert (await waiting).seq == 0


@simulated()
async def test_a_cache_that_loses_its_newest_seconds_loses_no_append(room: Room):
    await (await room.producer()).create(T, header("s"))
    producer, other = await room.producer(), await room.producer()
    names = [f"n{number}" for number in range(60)]
    old = room.cache.snapshot()
    answers: list[Appended] = []
    for number, name in enumerate(names):
        if number % 20 == 19:
            room.cache.restore(old)
        answers.append(await (producer, other)[number % 2].append(T, "s", [note(name)], timeout_ms=5000))
    contiguous(room, answers, names)


@simulated()
async def test_losing_the_whole_cache_under_load_loses_nothing(room: Room):
    await (await room.producer()).create(T, header("s"))
    producer = await room.producer(append_attempts_max=50)
    work = [asyncio.ensure_future(producer.append(T, "s", [note(f"n{n}")], timeout_ms=8000)) for n in range(200)]
    await asyncio.sleep(0.01)
    room.cache.flush()
    answers = await asyncio.gather(*work)
    contiguous(room, answers, [f"n{n}" for n in range(200)])


@simulated()
async def test_a_superseded_run_is_fenced_even_with_commits_on_their_way(room: Room):
    await (await room.producer()).create(T, header("s"))
    weather = Weather()
    zombie, other = await room.producer(weather), await room.producer()
    without_lock(room)
    held = await zombie.claim(T, "s", "alice")
    await zombie.append(T, "s", [note("a")], fence=held.fence)
    weather.fates = [ProduceFault(land_ms=100)] * 5
    late = [asyncio.ensure_future(zombie.append(T, "s", [note("z")], fence=held.fence)) for _ in range(5)]
    await asyncio.sleep(0.01)
    taken = await other.claim(T, "s", "bob", takeover=True)
    assert [await code_of(work) for work in late] == ["fenced"] * 5
    assert (await other.append(T, "s", [note("b")], fence=taken.fence)).seq == 1
    assert sum(v.code == "fenced" for v in room.replay("s")[1]) > 0, "the log never had to refuse the zombie"


@simulated()
async def test_a_caller_that_gives_up_takes_nobody_with_it(room: Room):
    await (await room.producer()).create(T, header("s"))
    producer = await room.producer()
    room.folding = False
    gone = asyncio.ensure_future(producer.append(T, "s", [note("gone")]))
    stays = asyncio.ensure_future(producer.append(T, "s", [note("stays")]))
    await asyncio.sleep(0.02)
    gone.cancel()
    room.folding = True
    assert (await stays).seq == 1
    with pytest.raises(asyncio.CancelledError):
        await gone


@simulated()
async def test_a_commit_never_overtakes_the_open_of_its_session(room: Room):
    """A session that is not there remembers no ids: the refusal of a commit would not hold for its second copy."""
    weather = Weather(ProduceFault(land_ms=200))
    producer = await room.producer(weather)
    opening = asyncio.ensure_future(producer.create(T, header("s")))
    appending = [asyncio.ensure_future(producer.append(T, "s", [note(str(n))])) for n in range(5)]
    await asyncio.sleep(0.1)
    assert weather.produced == 1
    await opening
    assert [(await work).seq for work in appending] == list(range(5))


@simulated()
async def test_a_claim_waits_until_it_is_certain_that_nobody_holds_the_session(room: Room):
    """The log compares epochs only: a claim that overtook the release it was planned on would be a takeover."""
    await (await room.producer()).create(T, header("s"))
    weather = Weather()
    producer = await room.producer(weather)
    held = await producer.claim(T, "s", "alice")
    weather.fates, weather.produced = [ProduceFault(land_ms=200)], 0
    releasing = asyncio.ensure_future(producer.release(T, "s", held.fence))
    claiming = asyncio.ensure_future(producer.claim(T, "s", "bob"))
    await asyncio.sleep(0.1)
    assert weather.produced == 1
    await releasing
    assert (await claiming).epoch == 2


async def backlog(room: Room) -> tuple[int, int, set[str]]:
    """Ten seconds without a fold at 60 % of its speed, clients that try again: (acknowledged, records, codes)."""
    room.fold_delay_s, room.fold_records_max = 0.02, 4  # 200 records a second
    producers = [await room.producer() for _ in range(4)]
    sessions = [f"b{number}" for number in range(200)]
    for session in sessions:
        await producers[0].create(T, header(session))
    before = room.topic.end(0)
    codes: set[str] = set()
    done = 0

    async def client(number: int) -> None:
        nonlocal done
        key = IdempotencyKey(f"k{number}", 0)
        for attempt in itertools.count(number):
            # Clients try again wherever they are sent to.
            producer = producers[attempt % 4]
            try:
                await producer.append(T, sessions[number % 200], [note(str(number))], key=key, timeout_ms=2000)
            except LedgerError as error:
                codes.add(error.code)
                await asyncio.sleep(max(error.detail.get("retry_after_ms", 0), 100) / 1000)
            else:
                done += 1
                return

    clients = []
    for number in range(120 * 30):
        room.folding = not 600 <= number < 1800
        clients.append(asyncio.ensure_future(client(number)))
        await asyncio.sleep(1 / 120)
    await asyncio.wait(clients, timeout=20)
    left = [work for work in clients if not work.done()]
    for work in left:
        work.cancel()
    await asyncio.gather(*left, return_exceptions=True)
    return done, room.topic.end(0) - before, codes


@simulated(1, partitions=1)
async def test_a_backlog_of_ten_seconds_at_sixty_percent_load_drains(room: Room):
    done, records, codes = await backlog(room)
    assert done == 3600
    assert "overloaded" in codes, "nobody was ever turned away"
    assert records < 3600 * 1.5
