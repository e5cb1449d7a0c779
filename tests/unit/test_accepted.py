import pytest

from producer.accepted import CHUNK_BYTES, find_maker
from producer.memory_cache import MemoryCache
from producer.memory_log import MemoryLog, MemoryTopic
from sim.loop import simulate
from surfacelog.entries import PLACE_BYTES
from surfacelog.keys import PartitionKeys
from surfacelog.records import Record

KEYS = PartitionKeys(b"t", 1).session(b"acme/s")
COMMITS = 3 * CHUNK_BYTES // PLACE_BYTES + 5


@pytest.mark.parametrize(
    ("seq", "maker"),
    [
        (0, ("c0", 0)),
        (2, ("c1", 1)),
        (2 * (COMMITS - 1), (f"c{COMMITS - 1}", COMMITS - 1)),
        (1, None),
        (2 * COMMITS, None),
    ],
)
def test_the_maker_of_a_seq_is_found_wherever_in_a_long_history(seq: int, maker: tuple[str, int] | None):
    """Every commit has two events, so every second seq begins one."""

    async def main(loop):
        topic, cache = MemoryTopic(1), MemoryCache()
        places = []
        for number in range(COMMITS):
            record = Record("commit", f"c{number}", b"{}", seq=2 * number)
            offset = topic.append(0, b"acme/s", record.headers(), record.value, 0)
            places.append((2 * number).to_bytes(8, "big") + offset.to_bytes(8, "big"))
        await cache.call("APPEND", KEYS.offsets, b"".join(places))
        assert await find_maker(MemoryLog(topic), cache, KEYS, 0, seq, 1000) == maker

    simulate(main, 1)


def test_a_session_without_commits_has_no_maker():
    async def main(loop):
        assert await find_maker(MemoryLog(MemoryTopic(1)), MemoryCache(), KEYS, 0, 0, 1000) is None

    simulate(main, 1)
