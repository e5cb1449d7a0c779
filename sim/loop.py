"""An asyncio event loop with virtual time, in which one seed decides every interleaving.

A lane is one simulated process: its callbacks run in the order that asyncio promises, while lanes take turns at
random. A lane may be paused, or killed as by kill -9: not one more line of it runs. There are no threads, sockets
or real clocks; whatever needs them fails.
"""

import asyncio
import gc
import heapq
import random
import sys
import weakref
from asyncio import events
from collections import deque
from collections.abc import AsyncGenerator, Callable, Coroutine
from contextvars import Context, ContextVar, copy_context
from hashlib import sha256
from typing import Any, NoReturn, TypeVar, TypeVarTuple

from sim.guard import RealWorldUsed, closed_world

__all__ = ["Deadlock", "Lane", "SimLoop", "StepsExceeded", "current_lane", "simulate"]

T = TypeVar("T")
Ts = TypeVarTuple("Ts")

STEPS_MAX = 400_000
# How often the lane that ran last runs on: real schedulers give bursts, and some bugs need them.
BURSTS = (0.0, 0.3, 0.7, 0.9)


class Deadlock(Exception):
    """Nothing is ready, no timer is set, and the main task still waits."""


class StepsExceeded(Exception):
    """The run took more steps than its bound: it goes in circles."""


class Lane:
    """One simulated process. `index` is its number in the trace. `fuse`: steps left, and what happens then."""

    __slots__ = ("alive", "context", "fuse", "index", "name", "paused", "ready")

    def __init__(self, name: str, index: int) -> None:
        self.name = name
        self.index = index
        self.alive = True
        self.paused = False
        self.fuse: tuple[int, Callable[[], None]] | None = None
        self.ready: deque[events.Handle] = deque()
        self.context = copy_context()
        self.context.run(_lane.set, self)

    def __repr__(self) -> str:
        return f"Lane({self.name})"


_lane: ContextVar[Lane] = ContextVar("lane")


def current_lane() -> Lane:
    """The lane whose code runs now."""
    return _lane.get()


class _Numbered:
    """Hashes by number of creation: sets of tasks then have the same order in every run."""

    number: int

    def __hash__(self) -> int:
        return self.number

    def __eq__(self, other: object) -> bool:
        return self is other


class SimFuture(_Numbered, asyncio.Future[Any]):
    """A future whose place in a set does not depend on its address."""

    __hash__ = _Numbered.__hash__

    def __init__(self, number: int, loop: asyncio.AbstractEventLoop) -> None:
        self.number = number
        super().__init__(loop=loop)


class SimTask(_Numbered, asyncio.Task[Any]):
    """A task whose place in a set does not depend on its address."""

    __hash__ = _Numbered.__hash__

    def __init__(self, coro: Any, *, number: int, loop: Any, name: Any, context: Context | None) -> None:
        self.number = number
        self.lane = _lane.get() if context is None else context[_lane]
        super().__init__(coro, loop=loop, name=name or f"task-{number}", context=context)


class SimLoop(asyncio.BaseEventLoop):
    """`random` is the only source of chance; what draws from it must do so in the order of the run."""

    _running = False
    _shut = False

    def __init__(self, seed: int, steps_max: int = STEPS_MAX) -> None:
        super().__init__()
        self.random = random.Random(seed)
        self.seed = seed
        self.steps = 0
        self.steps_max = steps_max
        self.errors: list[str] = []
        self.trace: list[str] = []
        self.world = Lane("world", 0)
        self._lanes = [self.world]
        self._lane_count = 0
        self._last = self.world
        self._burst = self.random.choice(BURSTS)
        self._now = 0.0
        self._timers: list[tuple[float, int, events.TimerHandle]] = []
        self._number = 0
        self._turns = seed
        self._tasks: list[weakref.ref[SimTask]] = []
        self._buried: list[object] = []
        self._generators: dict[int, Lane] = {}

    def lane(self, name: str) -> Lane:
        """A new process."""
        self._lane_count += 1
        lane = Lane(name, self._lane_count)
        self._lanes.append(lane)
        return lane

    def spawn(self, lane: Lane, coro: Coroutine[Any, Any, T], name: str | None = None) -> "asyncio.Task[T]":
        """Starts a task in a lane, whoever asks for it."""
        if not lane.alive:
            coro.close()
            raise RuntimeError(f"{lane} is dead")
        return lane.context.copy().run(self.create_task, coro, name=name)

    def kill(self, lane: Lane) -> None:
        """No line of the lane runs any more: no cleanup, no answer, no release."""
        assert lane is not self.world
        lane.alive = False
        # Collecting a dead task would close its coroutine, and that would run its cleanup.
        self._buried.extend(lane.ready)
        lane.ready.clear()
        for task in self._unfinished():
            if task.lane is lane:
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                self._buried.append(task)
        if lane in self._lanes:
            self._lanes.remove(lane)

    def _unfinished(self) -> list[SimTask]:
        return [task for ref in self._tasks if (task := ref()) is not None and not task.done()]

    def light(self, lane: Lane, steps: int, act: Callable[[], None]) -> None:
        """Does `act` after so many more steps of the lane: at an await, not at a time."""
        lane.fuse = (steps, act)

    def pause(self, lane: Lane, seconds: float) -> None:
        """The lane does nothing for so long, and then goes on as if no time had passed."""
        if lane.alive and not lane.paused:
            lane.paused = True
            self.world.context.copy().run(self.call_later, seconds, self._resume, lane)

    def _resume(self, lane: Lane) -> None:
        lane.paused = False

    def note(self, text: str) -> None:
        """A line of the trace: time (s), lane, text."""
        self.trace.append(f"{self._now:9.4f} {current_lane().name:<6} {text}")

    @property
    def trace_hash(self) -> str:
        """Equal for two runs that took the same turns and left the same trace."""
        whole = sha256(b"%d %d" % (self.steps, self._turns))
        for line in self.trace:
            whole.update(line.encode() + b"\n")
        return whole.hexdigest()[:16]

    def run_until_complete(self, future: Any) -> Any:
        """Runs until the coroutine is done and returns what it returns."""
        assert not self._running
        main = self.spawn(self.world, future, "main")
        hooks = sys.get_asyncgen_hooks()
        sys.set_asyncgen_hooks(firstiter=self._generator_begun, finalizer=self._generator_dropped)
        events._set_running_loop(self)
        self._running = True
        try:
            while not main.done():
                self._step()
        finally:
            self._running = False
            events._set_running_loop(None)
            sys.set_asyncgen_hooks(*hooks)
        return main.result()

    def _step(self) -> None:
        lane = self._choose()
        while lane is None:
            self._wait_for_timer()
            lane = self._choose()
        self._last = lane
        self.steps += 1
        if self.steps > self.steps_max:
            raise StepsExceeded(f"more than {self.steps_max} steps; pending: {self._pending()}")
        self._turns = hash((self._turns, lane.index))
        if lane.fuse is not None and self._burnt(lane):
            return
        handle = lane.ready.popleft()
        if not handle._cancelled:
            handle._run()

    def _burnt(self, lane: Lane) -> bool:
        assert lane.fuse is not None
        steps, act = lane.fuse
        lane.fuse = (steps - 1, act)
        if steps > 0:
            return False
        lane.fuse = None
        self.world.context.copy().run(act)
        return True

    def _choose(self) -> Lane | None:
        last = self._last
        if last.ready and last.alive and not last.paused and self.random.random() < self._burst:
            return last
        able = [lane for lane in self._lanes if lane.ready and lane.alive and not lane.paused]
        if not able:
            return None
        return able[0] if len(able) == 1 else able[int(self.random.random() * len(able))]

    def _wait_for_timer(self) -> None:
        while self._timers:
            when, _, handle = heapq.heappop(self._timers)
            if handle._cancelled or not self._owner(handle).alive:
                continue
            self._now = max(self._now, when)
            self._owner(handle).ready.append(handle)
            # Timers that are due together come in the order in which they were set, as asyncio has it.
            while self._timers and self._timers[0][0] <= self._now:
                _, _, due = heapq.heappop(self._timers)
                self._owner(due).ready.append(due)
            return
        raise Deadlock(f"nothing can happen any more; pending: {self._pending()}")

    def _owner(self, handle: events.Handle) -> Lane:
        context: Context = handle._context  # type: ignore[attr-defined]
        return context.get(_lane, self.world)

    def _pending(self) -> str:
        shown = [f"{task.get_name()}@{_where(task)}" for task in self._unfinished() if task.lane.alive]
        return ", ".join(shown[:20])

    def _generator_begun(self, generator: AsyncGenerator[Any, Any]) -> None:
        self._generators[id(generator)] = current_lane()

    def _generator_dropped(self, generator: AsyncGenerator[Any, Any]) -> None:
        lane = self._generators.pop(id(generator), self.world)
        if lane.alive and self._running:
            self.spawn(lane, generator.aclose())

    # What asyncio asks of a loop.

    def time(self) -> float:
        return self._now

    def call_soon(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.Handle:
        handle = events.Handle(callback, args, self, context)
        lane = self._owner(handle)
        if lane.alive:
            lane.ready.append(handle)
        return handle

    def call_later(
        self, delay: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> events.TimerHandle:
        handle = events.TimerHandle(when, callback, args, self, context)
        self._number += 1
        heapq.heappush(self._timers, (when, self._number, handle))
        return handle

    def _timer_handle_cancelled(self, handle: events.TimerHandle) -> None:
        """Asked by asyncio; a cancelled timer is dropped when it comes up."""

    def create_future(self) -> SimFuture:
        self._number += 1
        return SimFuture(self._number, self)

    def create_task(self, coro: Any, *, name: object = None, context: Context | None = None) -> Any:
        self._number += 1
        task = SimTask(coro, number=self._number, loop=self, name=name, context=context)
        self._tasks.append(weakref.ref(task))
        return task

    def is_running(self) -> bool:
        return self._running

    def is_closed(self) -> bool:
        return self._shut

    def get_debug(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        error = context.get("exception")
        self.errors.append(f"{context.get('message')}: {error!r}")

    def call_soon_threadsafe(
        self, callback: Callable[[*Ts], object], *args: *Ts, context: Context | None = None
    ) -> NoReturn:
        raise RealWorldUsed("call_soon_threadsafe: there is only one thread")

    def run_in_executor(self, executor: Any, func: Callable[[*Ts], Any], *args: *Ts) -> NoReturn:
        raise RealWorldUsed("run_in_executor: there is only one thread")

    def close(self) -> None:
        """Ends what is still pending, out of everybody's sight."""
        self._shut = True
        silenced, sys.unraisablehook = sys.unraisablehook, _ignore
        try:
            for lane in self._lanes:
                lane.alive = False
                lane.ready.clear()
            self._timers.clear()
            for task in self._unfinished():
                task._log_destroy_pending = False  # type: ignore[attr-defined]
                _end(task)
            self._tasks.clear()
            self._buried.clear()
        finally:
            sys.unraisablehook = silenced


def _end(task: SimTask) -> None:
    try:
        task.get_coro().close()
    except BaseException as error:  # a killed process's cleanup may try anything; nobody is there to care
        del error


def _ignore(_: object) -> None:
    """A hook that hears of errors in destructors of killed tasks."""


def _where(task: SimTask) -> str:
    frames = task.get_stack(limit=1)
    return f"{frames[-1].f_code.co_name}:{frames[-1].f_lineno}" if frames else "?"


def simulate(main: Callable[[SimLoop], Coroutine[Any, Any, T]], seed: int, steps_max: int = STEPS_MAX) -> T:
    """Runs `main(loop)` to its end in a world of its own and returns what it returns."""
    loop = SimLoop(seed, steps_max)
    # The cyclic collector runs when memory says so: not a thing that a seed decides.
    collects = gc.isenabled()
    gc.disable()
    try:
        with closed_world(loop.time):
            result: T = loop.run_until_complete(main(loop))
            return result
    finally:
        loop.close()
        if collects:
            gc.enable()
