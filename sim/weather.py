"""How badly the network and the servers behave at one time: odds of each fault, and how long things take."""

import random

import msgspec

__all__ = ["CALM", "Weather", "shown"]


class Weather(msgspec.Struct, frozen=True):
    """Odds are in 0..1, per operation. Of a produce: `refused` (nothing written), `lost` (unknown, not written),
    `landed` (unknown, written), `late` (unknown, written up to `late_ms_max` later, behind what followed),
    `doubled` (a second copy comes up to `late_ms_max` later). Of a cache operation: `cache_lost` (not run),
    `cache_mute` (run, answer lost). Of a notification: `unheard`."""

    delay_ms_max: float = 2.0
    refused: float = 0.0
    lost: float = 0.0
    landed: float = 0.0
    late: float = 0.0
    doubled: float = 0.0
    late_ms_max: float = 3_000.0
    cache_lost: float = 0.0
    cache_mute: float = 0.0
    unheard: float = 0.0
    log_away: bool = False

    def delay_s(self, chance: random.Random) -> float:
        """How long one message travels (s); often no time at all, so that interleavings decide."""
        return 0.0 if chance.random() < 0.5 else chance.random() * self.delay_ms_max / 1000


CALM = Weather()


def shown(weather: Weather) -> str:
    """What is not calm in it."""
    found = {name: getattr(weather, name) for name in weather.__struct_fields__}
    return ", ".join(f"{name} {value}" for name, value in found.items() if value != getattr(CALM, name))
