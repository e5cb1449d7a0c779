"""The simulated event loop: one seed, one run; time is virtual; the real world is out of reach."""

import asyncio
import threading
import time

import pytest

from sim.guard import RealWorldUsed
from sim.loop import Deadlock, SimLoop, StepsExceeded, current_lane, simulate


async def _three_processes(loop: SimLoop) -> tuple[str, list[str]]:
    seen: list[str] = []

    async def work(name: str) -> None:
        for turn in range(5):
            seen.append(f"{name}{turn}")
            loop.note(f"turn {turn}")
            await asyncio.sleep(0 if turn % 2 else 0.01)

    await asyncio.gather(*(loop.spawn(loop.lane(name), work(name)) for name in "abc"))
    return loop.trace_hash, seen


def test_the_same_seed_takes_the_same_turns():
    assert simulate(_three_processes, 7) == simulate(_three_processes, 7)


def test_other_seeds_take_other_turns():
    orders = {tuple(simulate(_three_processes, seed)[1]) for seed in range(40)}
    assert len(orders) > 20


def test_callbacks_of_one_process_keep_their_order():
    async def main(loop: SimLoop) -> list[int]:
        seen: list[int] = []
        lane = loop.lane("a")

        async def work() -> None:
            for number in range(20):
                asyncio.get_running_loop().call_soon(seen.append, number)
            await asyncio.sleep(0)

        loop.spawn(loop.lane("b"), _three(loop))
        await loop.spawn(lane, work())
        await asyncio.sleep(1)
        return seen

    async def _three(loop: SimLoop) -> None:
        await _three_processes(loop)

    for seed in range(10):
        assert simulate(main, seed) == list(range(20))


def test_a_year_passes_at_once():
    async def main(loop: SimLoop) -> float:
        await asyncio.sleep(365 * 86400)
        async with asyncio.timeout(5):
            await asyncio.sleep(1)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(5):
                await asyncio.sleep(10)
        return loop.time()

    assert simulate(main, 1) == 365 * 86400 + 6


def test_a_deadlock_is_told_with_the_tasks_that_wait():
    async def main(loop: SimLoop) -> None:
        loop.spawn(loop.lane("a"), asyncio.Event().wait(), "stuck")  # type: ignore[arg-type]
        await asyncio.Event().wait()

    with pytest.raises(Deadlock, match="stuck"):
        simulate(main, 1)


def test_a_run_in_circles_is_ended():
    async def main(loop: SimLoop) -> None:
        while True:
            await asyncio.sleep(0)

    with pytest.raises(StepsExceeded):
        simulate(main, 1, steps_max=1000)


def test_a_killed_process_runs_no_cleanup():
    async def main(loop: SimLoop) -> list[str]:
        seen: list[str] = []
        lane = loop.lane("a")

        async def work() -> None:
            try:
                seen.append("begun")
                await asyncio.sleep(1)
                seen.append("went on")
            finally:
                await asyncio.sleep(0)
                seen.append("cleaned up")

        loop.spawn(lane, work())
        await asyncio.sleep(0.5)
        loop.kill(lane)
        await asyncio.sleep(5)
        return list(seen)

    assert simulate(main, 1) == ["begun"]


def test_a_paused_process_goes_on_late():
    async def main(loop: SimLoop) -> list[float]:
        seen: list[float] = []
        lane = loop.lane("a")

        async def work() -> None:
            for _ in range(3):
                seen.append(loop.time())
                assert current_lane() is lane
                await asyncio.sleep(1)

        task = loop.spawn(lane, work())
        await asyncio.sleep(0.5)
        loop.pause(lane, 10)
        await task
        return seen

    assert simulate(main, 1) == [0.0, 10.5, 11.5]


@pytest.mark.parametrize(
    "reach",
    [
        lambda: threading.Thread(target=print).start(),
        lambda: time.sleep(0.001),
        lambda: time.time(),
        lambda: time.monotonic(),
        lambda: asyncio.get_running_loop().run_in_executor(None, print),
        lambda: asyncio.get_running_loop().call_soon_threadsafe(print),
    ],
)
def test_the_real_world_is_out_of_reach(reach):
    async def main(loop: SimLoop) -> None:
        reach()

    with pytest.raises(RealWorldUsed):
        simulate(main, 1)
    assert time.monotonic() > 0


def test_sets_of_tasks_have_an_order_that_the_seed_decides():
    async def main(loop: SimLoop) -> list[str]:
        tasks = {asyncio.create_task(asyncio.sleep(1), name=str(number)) for number in range(50)}
        done, _ = await asyncio.wait(tasks)
        return [task.get_name() for task in done]

    assert simulate(main, 1) == simulate(main, 1)


def test_an_error_in_a_task_that_nobody_awaits_is_kept():
    async def main(loop: SimLoop) -> list[str]:
        async def fail() -> None:
            raise ValueError("planted")

        task = asyncio.create_task(fail())
        await asyncio.sleep(1)
        del task
        return list(loop.errors)

    assert "planted" in simulate(main, 1)[0]
