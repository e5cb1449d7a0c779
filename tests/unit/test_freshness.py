import asyncio

import pytest

from producer.freshness import LogEnds
from producer.log import Unavailable
from sim.loop import simulate


class SlowLog:
    """Answers after 10 ms with the end as it was when it was asked."""

    def __init__(self) -> None:
        self.end = 0
        self.asked: list[list[int]] = []
        self.away = False

    async def ends(self, partitions: list[int], timeout_ms: int) -> dict[int, int]:
        self.asked.append(list(partitions))
        found = {partition: self.end for partition in partitions}
        await asyncio.sleep(0.01)
        if self.away:
            raise Unavailable("planted")
        return found


def test_an_end_that_was_being_read_already_is_not_taken_for_a_later_request():
    async def main(loop):
        log = SlowLog()
        ends = LogEnds(log, 1000)
        first = asyncio.ensure_future(ends.after_now(3))
        await asyncio.sleep(0.005)
        log.end = 7
        assert await ends.after_now(3) == 7
        assert await first == 0

    simulate(main, 1)


def test_those_who_come_together_share_one_reading():
    async def main(loop):
        log = SlowLog()
        ends = LogEnds(log, 1000)
        first = asyncio.ensure_future(ends.after_now(0))
        await asyncio.sleep(0)
        await asyncio.gather(*(ends.after_now(number % 2) for number in range(50)))
        await first
        assert log.asked == [[0], [0, 1]] or log.asked == [[0, 1]]

    simulate(main, 1)


def test_a_log_that_is_away_is_told_to_all_and_asked_again_by_the_next():
    async def main(loop):
        log = SlowLog()
        ends = LogEnds(log, 1000)
        log.away = True
        found = await asyncio.gather(*(ends.after_now(1) for _ in range(3)), return_exceptions=True)
        assert all(isinstance(error, Unavailable) for error in found)
        log.away = False
        assert await ends.after_now(1) == 0

    simulate(main, 1)


def test_one_that_gives_up_takes_the_answer_from_nobody():
    async def main(loop):
        ends = LogEnds(SlowLog(), 1000)
        gone, stays = (asyncio.ensure_future(ends.after_now(1)) for _ in range(2))
        await asyncio.sleep(0.001)
        gone.cancel()
        assert await stays == 0
        with pytest.raises(asyncio.CancelledError):
            await gone

    simulate(main, 1)
