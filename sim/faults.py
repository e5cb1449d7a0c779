"""What goes wrong in one run, and when: drawn from the seed, carried out beside the clients."""

import asyncio
from collections.abc import Callable

from sim.cluster import Cluster
from sim.processes import Process
from sim.temper import FAMILIES
from sim.weather import CALM, shown
from sim.world import GROUP, World

__all__ = ["Faults"]

SESSION_TIMEOUT_S = 1.0


class Faults:
    """Runs until `stop`; then `heal` makes everything well."""

    def __init__(self, world: World, cluster: Cluster) -> None:
        self._world = world
        self._cluster = cluster
        self._stopped = False
        self._copies = [world.cache.snapshot()]
        acts: dict[str, Callable[[], None]] = {
            "storm": self._storm,
            "kill": self._kill,
            "pause": self._pause,
            "failover": self._failover,
            "rebalance": self._rebalance,
            "cut": self._cut,
            "flush": self._flush,
            "lose_key": self._lose_key,
        }
        assert set(acts) == set(FAMILIES)
        self._acts = [acts[family] for family in world.temper.families]
        self._left = world.temper.faults
        if world.temper.first is not None:
            world.sky.weather = world.temper.first

    async def run(self) -> None:
        """One fault after another."""
        chance = self._world.chance
        while self._left and not self._stopped:
            self._left -= 1
            await asyncio.sleep(chance.random() * self._world.temper.gap_s)
            if chance.random() < 0.4:
                self._copies.append(self._world.cache.snapshot())
            if self._acts and not self._stopped:
                chance.choice(self._acts)()

    def heal(self) -> None:
        """Nothing goes wrong any more."""
        self._stopped = True
        self._world.sky.weather = CALM
        for process in self._cluster.alive():
            process.lane.fuse = None
        self._world.loop.note("all is well from here on")

    def _after(self, seconds: float, act: Callable[[], None]) -> None:
        self._world.sky.later(seconds, act)

    def _storm(self) -> None:
        world = self._world
        world.sky.weather = storm = world.chance.choice(world.temper.storms)
        world.loop.note(f"weather: {shown(storm)}")

        def pass_over() -> None:
            if world.sky.weather is storm and not self._stopped:
                world.sky.weather = world.temper.first or CALM

        self._after(world.chance.random() * 2.0, pass_over)

    def _victim(self) -> Process | None:
        alive = self._cluster.alive()
        return self._world.chance.choice(alive) if alive else None

    def _kill(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        chance = self._world.chance
        back_s = chance.choice((0.0, 0.1, 1.5))

        def die() -> None:
            self._world.loop.note(f"{victim.name} is killed, back after {back_s} s")
            self._cluster.kill(victim, back_s)

        self._world.loop.light(victim.lane, chance.randrange(60), die)

    def _pause(self) -> None:
        victim = self._victim()
        if victim is None:
            return
        chance = self._world.chance
        pause_s = chance.choice((0.1, 0.5, 0.5, 1.2, 3.0))

        def stop() -> None:
            self._world.loop.note(f"{victim.name} stops for {pause_s} s")
            self._world.loop.pause(victim.lane, pause_s)
            if pause_s > SESSION_TIMEOUT_S:
                self._after(SESSION_TIMEOUT_S, lambda: self._cluster.expel(victim))

        self._world.loop.light(victim.lane, chance.randrange(60), stop)

    def _failover(self) -> None:
        copies = self._copies
        copy = copies[max(len(copies) - self._world.chance.choice((1, 1, 2, 4)), 0)]
        self._world.cache.restore(copy)
        self._world.damaged = True
        self._world.notice_names()
        # The copy may be one that had lost a key.
        for key in self._world.lost:
            self._world.lost[key] = self._world.end(key)
        self._copies = [copy]
        self._world.loop.note("the cache fails over to an older copy")

    def _flush(self) -> None:
        if self._world.chance.random() < 0.3:
            self._world.cache.flush()
            self._world.damaged = True
            self._world.loop.note("the cache is empty")

    def _lose_key(self) -> None:
        """One key of one session is gone."""
        world, chance = self._world, self._world.chance
        key = chance.choice(world.sessions)
        own = world.keys(world.partition(key)).session(key)
        lost = chance.choice([own.meta, own.surface, own.recent, own.offsets, own.transcript, own.used_keys])
        if world.cache.data.call("DEL", lost):
            world.damaged = True
            world.lost[key] = world.end(key)
            world.loop.note(f"the cache loses {lost.decode()}")

    def _rebalance(self) -> None:
        world, chance = self._world, self._world.chance
        partition = chance.randrange(world.topic.partitions)
        name = chance.choice([None, *self._cluster.members()])
        group = world.topic.group(GROUP)
        owner = group.owners.get(partition)
        if owner is not None and chance.random() < 0.3:
            world.loop.note(f"{owner} is expelled from the group")
            world.notice_names()
            group.expel(owner)
        world.loop.note(f"partition {partition} goes to {name}")
        group.place(partition, name)

    def _cut(self) -> None:
        victim = self._victim()
        if victim is not None:
            seconds = self._world.chance.random() * 1.5
            self._world.loop.note(f"{victim.name} is cut off for {seconds:.2f} s")
            victim.cut(seconds)
