"""The gate lets in what fits, in the order in which it was asked, and counts right whoever gives up waiting."""

import asyncio

import pytest

from producer.gate import Gate
from producer.log import Unavailable


async def turns() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def test_what_fits_is_let_in_without_giving_way() -> None:
    gate = Gate(2, 100)
    coroutine = gate.enter(40, 100)
    with pytest.raises(StopIteration):
        coroutine.send(None)
    assert (gate.records, gate.bytes) == (1, 40)


async def test_records_and_bytes_are_both_bounds() -> None:
    for gate, sizes in ((Gate(2, 1000), (1, 1, 1)), (Gate(10, 100), (50, 50, 1))):
        for size in sizes[:2]:
            await gate.enter(size, 100)
        with pytest.raises(Unavailable, match="nothing was written"):
            await gate.enter(sizes[2], 10)
        gate.leave(sizes[0])
        await gate.enter(sizes[2], 10)


async def test_a_record_larger_than_the_bound_is_let_in_alone() -> None:
    gate = Gate(10, 100)
    await gate.enter(5000, 10)
    with pytest.raises(Unavailable):
        await gate.enter(1, 10)
    gate.leave(5000)
    await gate.enter(1, 10)


async def test_who_asks_first_comes_first_even_if_a_later_one_would_fit() -> None:
    gate = Gate(10, 100)
    await gate.enter(90, 10)
    order: list[str] = []

    async def enter(name: str, size: int) -> None:
        await gate.enter(size, 1000)
        order.append(name)

    tasks = [asyncio.create_task(enter(name, size)) for name, size in (("large", 60), ("small", 5), ("third", 20))]
    await turns()
    assert order == []
    gate.leave(90)
    # Comes while the others were called and did not run yet.
    tasks.append(asyncio.create_task(enter("late", 1)))
    await asyncio.gather(*tasks)
    assert order == ["large", "small", "third", "late"]


async def test_one_that_asks_before_the_called_ones_ran_stays_behind_them() -> None:
    gate = Gate(1, 100)
    await gate.enter(1, 10)
    order: list[str] = []

    async def enter(name: str) -> None:
        await gate.enter(1, 1000)
        order.append(name)
        gate.leave(1)

    waiting = asyncio.create_task(enter("waiting"))
    await turns()
    overtaker = asyncio.create_task(enter("overtaker"))
    gate.leave(1)
    await asyncio.gather(waiting, overtaker)
    assert order == ["waiting", "overtaker"]


@pytest.mark.parametrize("called", [False, True])
async def test_a_cancelled_one_leaves_no_trace(called: bool) -> None:
    gate = Gate(1, 100)
    await gate.enter(7, 10)
    waiting = asyncio.create_task(gate.enter(9, 1000))
    await turns()
    if called:
        gate.leave(7)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    if not called:
        gate.leave(7)
    assert (gate.records, gate.bytes) == (0, 0)
    await gate.enter(1, 10)


async def test_a_shut_gate_tells_its_reason_and_lets_in_who_still_waits_when_it_opens() -> None:
    gate = Gate(5, 100)
    gate.shut("no broker answers")
    with pytest.raises(Unavailable, match="no broker answers; nothing was written"):
        await gate.enter(1, 10)
    waiting = asyncio.create_task(gate.enter(1, 1000))
    await turns()
    assert not waiting.done()
    gate.open()
    await waiting
    assert gate.records == 1
