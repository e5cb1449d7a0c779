"""The temper of a run: how big its world is and which kinds of fault it has, drawn from the seed.

Most runs have some of everything. The others push in one direction, because some faults need many small steps in
one order before they show.
"""

from random import Random

import msgspec

from sim.weather import Weather

__all__ = ["FAMILIES", "Temper", "temper_of"]

# Every kind of fault that `sim.faults` knows.
FAMILIES = ("storm", "kill", "pause", "failover", "rebalance", "cut", "flush", "lose_key")
STORMS = (
    Weather(lost=0.1, landed=0.1),
    Weather(late=0.25, late_ms_max=800),
    Weather(late=0.2, landed=0.1, doubled=0.3, late_ms_max=3_000),
    Weather(doubled=0.6, late_ms_max=600),
    Weather(doubled=0.5, landed=0.2, unheard=0.8, late_ms_max=2_000),
    Weather(cache_lost=0.1, cache_mute=0.1),
    Weather(cache_mute=0.3),
    Weather(unheard=1.0),
    Weather(refused=0.2),
    Weather(delay_ms_max=300.0),
    Weather(log_away=True),
    Weather(delay_ms_max=60.0, lost=0.05, landed=0.05, late=0.05, doubled=0.1, cache_mute=0.05, unheard=0.2),
)
COPIES = (
    Weather(late=0.2, doubled=0.7, late_ms_max=2_000, delay_ms_max=20.0),
    Weather(late=0.4, doubled=0.5, late_ms_max=700),
)
DEAF = (
    Weather(doubled=0.8, unheard=1.0, late_ms_max=1_500),
    Weather(unheard=1.0, doubled=0.3, late=0.1, late_ms_max=1_000),
)


class Temper(msgspec.Struct, frozen=True, kw_only=True):
    """`families`: fault kinds, the more often named the likelier. `faults`: how many in all; `gap_s`: the longest
    time between two. `first`: the weather from the start on. `small_calls`: the projector writes in many small
    calls and keeps nearly nothing in memory. `small_windows`: ids and keys are forgotten soon. `busy`: clients
    pause less. `claims`: odds that a raw writer claims."""

    name: str
    partitions: int
    sessions: int
    producers: int
    workers: int
    clients: int
    raw_writers: int
    operations: int
    small_calls: bool
    small_windows: bool
    families: tuple[str, ...]
    faults: int
    gap_s: float
    storms: tuple[Weather, ...] = STORMS
    first: Weather | None = None
    busy: bool = False
    claims: float = 0.1


def temper_of(chance: Random) -> Temper:
    """The temper of one run."""
    kind = chance.choices((_mixed, _copies, _pauses, _moves, _losses), (55, 15, 15, 10, 5))[0]
    return kind(chance)


def _mixed(chance: Random) -> Temper:
    return Temper(
        name="mixed",
        partitions=chance.choice((1, 1, 2)),
        sessions=chance.choice((1, 1, 2, 3)),
        producers=chance.choice((1, 2, 2, 3)),
        workers=chance.choice((1, 2, 2)),
        clients=chance.choice((2, 2, 3)),
        raw_writers=chance.choice((0, 0, 1)),
        operations=chance.choice((3, 5, 7)),
        small_calls=chance.random() < 0.3,
        small_windows=chance.random() < 0.5,
        families=tuple(family for family in FAMILIES for _ in range(chance.choice((0, 1, 1, 4)))),
        faults=chance.choice((0, 2, 4, 8, 16)),
        gap_s=chance.choice((0.02, 0.1, 0.4)),
    )


def _copies(chance: Random) -> Temper:
    """Writers of the bare protocol, one of them superseded, whose records come late and twice."""
    return Temper(
        name="copies",
        partitions=1,
        sessions=1,
        producers=1,
        workers=1,
        clients=chance.choice((1, 2)),
        raw_writers=chance.choice((2, 3)),
        operations=chance.choice((8, 12)),
        small_calls=False,
        small_windows=chance.random() < 0.6,
        families=("pause",),
        faults=chance.choice((0, 0, 3)),
        gap_s=0.5,
        first=chance.choice((*COPIES, *DEAF)),
        claims=chance.choice((0.1, 0.4)),
    )


def _pauses(chance: Random) -> Temper:
    """Producers that stop for longer than their lock lives, and hear nothing, while others go on."""
    return Temper(
        name="pauses",
        partitions=1,
        sessions=1,
        producers=2,
        workers=1,
        clients=chance.choice((2, 3)),
        raw_writers=chance.choice((0, 1)),
        operations=chance.choice((8, 10)),
        small_calls=chance.random() < 0.2,
        small_windows=chance.random() < 0.8,
        families=("pause", "pause", "pause", "storm", "cut"),
        faults=chance.choice((6, 12)),
        gap_s=chance.choice((0.05, 0.2)),
        storms=DEAF,
        first=chance.choice(DEAF),
        busy=True,
        claims=0.0,
    )


def _moves(chance: Random) -> Temper:
    """Partitions that change hands all the time, and a cache that loses nothing."""
    return Temper(
        name="moves",
        partitions=chance.choice((1, 2)),
        sessions=chance.choice((1, 2)),
        producers=chance.choice((1, 2)),
        workers=chance.choice((2, 3)),
        clients=2,
        raw_writers=0,
        operations=chance.choice((5, 8)),
        small_calls=chance.random() < 0.2,
        small_windows=chance.random() < 0.3,
        families=("rebalance", "rebalance", "rebalance", "rebalance", "pause", "kill"),
        faults=chance.choice((8, 16)),
        gap_s=chance.choice((0.1, 0.3)),
    )


def _losses(chance: Random) -> Temper:
    """A cache that loses single keys, under writers that do not look at it."""
    return Temper(
        name="losses",
        partitions=1,
        sessions=1,
        producers=1,
        workers=chance.choice((1, 2)),
        clients=1,
        raw_writers=chance.choice((1, 2)),
        operations=chance.choice((5, 8)),
        small_calls=False,
        small_windows=chance.random() < 0.3,
        families=("lose_key",),
        faults=chance.choice((2, 4, 8)),
        gap_s=chance.choice((0.1, 0.4)),
    )
