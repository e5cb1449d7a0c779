import asyncio

from producer.deadlines import TICK_S, Deadlines
from sim.loop import simulate


class Entry:
    """Notes when it was told."""

    def __init__(self, deadline: float, told: list[tuple[float, float]]) -> None:
        self.deadline = deadline
        self.told = told

    def expire(self) -> None:
        self.told.append((self.deadline, asyncio.get_running_loop().time()))


def test_each_is_told_once_within_a_tick_of_its_deadline():
    async def main(loop):
        deadlines, told = Deadlines(), []
        for number in (50, 3, 20, 20, 1, 700):
            deadlines.watch(Entry(number / 100, told))
        await asyncio.sleep(0.1)
        deadlines.watch(Entry(0.15, told))
        await asyncio.sleep(10)
        assert sorted(deadline for deadline, _ in told) == [0.01, 0.03, 0.15, 0.2, 0.2, 0.5, 7.0]
        assert all(deadline <= at <= deadline + 2 * TICK_S for deadline, at in told)

    simulate(main, 1)


def test_who_is_taken_out_is_not_told():
    async def main(loop):
        deadlines, told = Deadlines(), []
        gone, stays = Entry(0.5, told), Entry(0.5, told)
        bucket = deadlines.watch(gone)
        deadlines.watch(stays)
        del bucket[gone]
        await asyncio.sleep(1)
        assert len(told) == 1

    simulate(main, 1)


def test_closing_tells_everybody_at_once():
    async def main(loop):
        deadlines, told = Deadlines(), []
        for number in range(5):
            deadlines.watch(Entry(100.0 + number, told))
        deadlines.close()
        assert len(told) == 5
        await asyncio.sleep(200)
        assert len(told) == 5

    simulate(main, 1)
