import asyncio

import pytest

from producer.admission import LAG_RECORDS_FREE, Budget, FoldLag
from producer.limits import AppendLimits
from sim.loop import simulate
from surfacelog.errors import ProtocolError


def in_virtual_time(work):
    async def main(loop):
        await work()

    simulate(main, 1)


def test_a_budget_lets_in_what_fits_and_the_rest_in_the_order_it_came():
    async def work():
        budget = Budget(AppendLimits(append_commits_max=10, append_bytes_max=100))
        seen: list[int] = []

        async def take(number: int, size_bytes: int) -> None:
            await budget.take(size_bytes, 5)
            seen.append(number)

        tasks = [asyncio.ensure_future(take(n, size)) for n, size in enumerate((60, 60, 10, 40))]
        await asyncio.sleep(1)
        assert seen == [0], "a small one must not overtake a large one, or that waits for ever"
        budget.give_back(60)
        await asyncio.gather(*tasks[:3])
        assert seen == [0, 1, 2]
        budget.give_back(60)
        await tasks[3]

    in_virtual_time(work)


def test_who_waits_too_long_is_told_and_takes_nothing():
    async def work():
        budget = Budget(AppendLimits(append_commits_max=1))
        await budget.take(1, 1)
        with pytest.raises(ProtocolError) as refusal:
            await budget.take(1, 0.5)
        assert refusal.value.code == "overloaded"
        assert refusal.value.detail["retry_after_ms"] > 0
        waiting = asyncio.ensure_future(budget.take(1, 60))
        await asyncio.sleep(0.1)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        budget.give_back(1)
        await budget.take(1, 0.1)

    in_virtual_time(work)


def test_one_that_is_larger_than_the_whole_budget_is_let_in_alone():
    async def work():
        budget = Budget(AppendLimits(append_bytes_max=10))
        assert await budget.take(1000, 1) == 10
        with pytest.raises(ProtocolError):
            await budget.take(1, 0.1)

    in_virtual_time(work)


def test_a_lag_that_clears_in_time_is_no_reason_to_refuse():
    lag = FoldLag()
    lag.saw_end(10_000)
    lag.saw_next(0, 0.0)
    for second in range(1, 4):
        lag.saw_next(second * 2_000, float(second))
    lag.admit(deadline=13.0, now=3.0)  # 4,000 records at 2,000 a second: 2 s of 10
    with pytest.raises(ProtocolError) as refusal:
        lag.admit(deadline=6.0, now=3.0)
    assert refusal.value.code == "overloaded"
    assert 500 <= refusal.value.detail["retry_after_ms"] <= 2_000


def test_a_fold_that_stands_still_is_noticed():
    lag = FoldLag()
    lag.saw_end(LAG_RECORDS_FREE + 100)
    lag.saw_next(0, 0.0)
    lag.admit(deadline=10.0, now=0.0)
    lag.saw_next(0, 1.5)
    with pytest.raises(ProtocolError):
        lag.admit(deadline=11.5, now=1.5)


def test_a_fold_that_caught_up_is_not_judged_by_its_idle_time():
    lag = FoldLag()
    lag.saw_end(100)
    lag.saw_next(0, 0.0)
    lag.saw_next(100, 0.5)
    lag.saw_next(100, 60.0)
    lag.saw_end(1_000)
    lag.admit(deadline=70.0, now=60.0)


def test_a_few_records_are_never_a_backlog():
    lag = FoldLag()
    lag.saw_end(LAG_RECORDS_FREE)
    lag.saw_next(0, 0.0)
    lag.saw_next(0, 100.0)
    lag.admit(deadline=100.1, now=100.0)


def test_what_a_worker_folds_when_it_is_given_little_is_not_taken_for_its_speed():
    lag = FoldLag()
    for second in range(60):
        lag.saw_end(10 * second + 5)
        lag.saw_next(10 * second, float(second))
    lag.saw_end(2_000)  # A burst comes in.
    lag.admit(deadline=70.0, now=60.0)
