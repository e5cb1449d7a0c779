"""The states that a worker keeps are bounded in number and in weight; the least recently used goes first."""

from projector.held import Held
from projector.states import States
from surfacelog.keys import PartitionKeys
from surfacelog.tools import ToolTable

KEYS = PartitionKeys(b"tag", 1)


def held(name: bytes) -> Held:
    return Held(KEYS.session(name))


def test_the_least_recently_used_goes_first() -> None:
    states = States(2, 1 << 30)
    for name in (b"a", b"b", b"c"):
        states.put(0, name, held(name))
    states.put(0, b"b", held(b"b"))
    states.trim()
    assert [states.get(0, name) is not None for name in (b"a", b"b", b"c")] == [False, True, True]


def test_the_sum_of_weights_is_bounded() -> None:
    one = held(b"a").weight
    states = States(100, 3 * one)
    for number in range(10):
        states.put(0, b"%d" % number, held(b"s"))
        states.trim()
    assert len(states) == 3


def test_a_partition_is_forgotten_alone() -> None:
    states = States(10, 1 << 30)
    states.put(0, b"a", held(b"a"))
    states.put(1, b"a", held(b"a"))
    states.drop_partition(0)
    assert states.get(0, b"a") is None
    assert states.get(1, b"a") is not None
    states.drop(1, b"a")
    states.drop(1, b"a")
    assert len(states) == 0


def test_tool_tables_weigh() -> None:
    light = held(b"a")
    before = light.weight
    surface = light.state.surface
    for seq in range(3):
        surface.headers[seq] = ToolTable(f"{seq % 2}", dict.fromkeys(map(str, range(100)), "complete"))
    light.weigh_tables({"0", "1"})
    assert 2 * 100 * 100 < light.weight - before < 3 * 100 * 300
