import asyncio

import msgspec

from producer.memory_cache import MemoryCache
from producer.waiting import Verdicts
from sim.loop import simulate
from surfacelog.verdict import Verdict

CHANNEL, WANTED = b"sl:{t}:verdicts:r", b"sl:{t}:wanted"


def hearing(work):
    async def main(loop):
        cache, wanted = MemoryCache(), []
        verdicts = Verdicts(cache, [CHANNEL], [WANTED], wanted.append)
        await verdicts.start(1)
        await work(cache, verdicts, wanted)
        await verdicts.close()

    simulate(main, 1)


def payload(*ids: str) -> bytes:
    return msgspec.json.encode([Verdict("accepted", name, seq=3) for name in ids])


def test_each_who_waits_is_told_once_and_strangers_are_ignored():
    async def work(cache, verdicts, wanted):
        told: list[Verdict] = []
        verdicts.expect("a", told.append)
        verdicts.expect("b", told.append)
        verdicts.forget("b")
        for message in (b"garbage", b"[", b'{"a":1}', payload("a", "b", "c"), payload("a")):
            await cache.call("SPUBLISH", CHANNEL, message)
        await asyncio.sleep(0.1)
        assert [verdict.id for verdict in told] == ["a"]
        assert not wanted

    hearing(work)


def test_a_wish_for_a_lock_is_passed_on_and_is_no_verdict():
    async def work(cache, verdicts, wanted):
        await cache.call("SPUBLISH", WANTED, b"acme/s")
        await cache.call("SPUBLISH", WANTED, payload("a"))
        await asyncio.sleep(0.1)
        assert wanted == [b"acme/s", payload("a")]

    hearing(work)
