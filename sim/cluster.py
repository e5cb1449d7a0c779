"""The processes that run now, and those that take their places after a crash."""

from collections.abc import Sequence

from sim.processes import GatewayProcess, Process, ProducerProcess, WorkerProcess
from sim.world import GROUP, World

__all__ = ["Cluster"]


class Cluster:
    """Producers, workers and one gateway. A place stays empty until its process is back."""

    def __init__(self, world: World) -> None:
        self._world = world
        self._places: dict[tuple[type[Process], int], Process] = {}
        for kind, count in (
            (ProducerProcess, world.temper.producers),
            (WorkerProcess, world.temper.workers),
            (GatewayProcess, 1),
        ):
            for number in range(count):
                self._start(kind, number, 0)

    def _start(self, kind: type[Process], number: int, generation: int) -> None:
        process = kind(self._world, number, generation)
        self._places[kind, number] = process
        self._world.loop.note(f"{process.name} starts")

    def alive(self) -> Sequence[Process]:
        """Everybody who lives, in a fixed order."""
        return [process for process in self._places.values() if process.lane.alive]

    def producers(self) -> Sequence[ProducerProcess]:
        """The producers that live."""
        return [process for process in self.alive() if isinstance(process, ProducerProcess)]

    def gateways(self) -> Sequence[GatewayProcess]:
        """The gateways that live."""
        return [process for process in self.alive() if isinstance(process, GatewayProcess)]

    def members(self) -> Sequence[str]:
        """The names of all workers in their group."""
        return [process.member for process in self._places.values() if isinstance(process, WorkerProcess)]

    def kill(self, victim: Process, back_s: float) -> None:
        """Ends a process at once; another takes its place after `back_s`."""
        if not victim.lane.alive:
            return
        victim.kill()
        self._world.notice_names()
        self._world.sky.later(back_s, lambda: self._start(type(victim), victim.number, victim.generation + 1))

    def expel(self, process: Process) -> None:
        """The group gives up a worker that has been silent for too long."""
        if isinstance(process, WorkerProcess) and process.lane.paused and process in self._places.values():
            self._world.notice_names()
            self._world.topic.group(GROUP).expel(process.member)
