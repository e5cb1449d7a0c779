"""A Kafka and a Valkey in the background, for users without Docker: up, status and down, all by their folder.

What runs is known from pid files, so that any later process can see and end it.
"""

import fcntl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import msgspec

from deploy.child import ServerFailed
from deploy.kafka_cluster import KafkaCluster
from deploy.ports import free_ports
from deploy.valkey import ValkeyServer

__all__ = ["ClusterStatus", "down", "status", "up"]


class ClusterStatus(msgspec.Struct, frozen=True):
    """`kafka`, `redis`: the addresses that clients use. `nodes`: Kafka nodes planned, `running`: alive now."""

    folder: str
    kafka: str
    redis: str
    nodes: int
    running: int
    redis_running: bool
    memory_bytes: int

    @property
    def complete(self) -> bool:
        """Whether everything runs."""
        return self.redis_running and self.running == self.nodes

    @property
    def ended(self) -> bool:
        """Whether nothing runs."""
        return not self.redis_running and self.running == 0


class _RedisPlan(msgspec.Struct, frozen=True):
    port: int


def up(folder: Path, nodes: int | None, report: Callable[[str], None]) -> ClusterStatus:
    """Starts what does not run yet, on the same addresses and data as before, and returns when all answer.

    `nodes` None: as many as the folder has, else one. Raises Prerequisite, ServerFailed, or ValueError when the
    folder has another number of nodes. `report` hears what is being done.
    """
    folder = folder.absolute()
    folder.mkdir(parents=True, exist_ok=True)
    with _locked(folder):
        known = KafkaCluster.find(folder / "kafka")
        count = nodes or (len(known.nodes) if known else 1)
        # It lives long enough to be worth the JVM's better compiler.
        KafkaCluster.start(count, folder / "kafka", heap_mb=384, fast_start=False, detached=True, report=report)
        redis = _redis(folder)
        if not redis.running():
            report("starting Valkey")
            ValkeyServer.start(redis.folder, port=redis.port, detached=True)
    now = status(folder)
    if now is None or not now.complete:
        raise ServerFailed(f"a server ended right after its start: see the logs in {folder}")
    return now


def status(folder: Path) -> ClusterStatus | None:
    """What of the folder's cluster runs; None when none was ever made there."""
    folder = folder.absolute()
    kafka = KafkaCluster.find(folder / "kafka")
    if kafka is None:
        return None
    redis = _redis(folder)
    sizes = kafka.memory_bytes()
    if redis.child is not None:
        sizes.append(redis.child.memory_bytes() or 0)
    return ClusterStatus(
        folder=str(folder),
        kafka=kafka.bootstrap,
        redis=redis.url,
        nodes=len(kafka.nodes),
        running=kafka.running(),
        redis_running=redis.running(),
        memory_bytes=sum(sizes),
    )


def down(folder: Path) -> bool:
    """Ends all that runs; the data stays. False when nothing ran."""
    folder = folder.absolute()
    if not folder.is_dir():
        return False
    with _locked(folder):
        kafka = KafkaCluster.find(folder / "kafka")
        if kafka is None:
            return False
        redis = _redis(folder)
        ran = kafka.running() > 0 or redis.running()
        redis.stop()
        kafka.stop()
    return ran


def _redis(folder: Path) -> ValkeyServer:
    """The folder's Valkey on the port that it keeps from run to run."""
    home = folder / "redis"
    home.mkdir(exist_ok=True)
    path = home / "plan.json"
    try:
        plan = msgspec.json.decode(path.read_bytes(), type=_RedisPlan)
    except OSError:
        plan = _RedisPlan(free_ports(1)[0])
        path.write_bytes(msgspec.json.encode(plan))
    return ValkeyServer.find(home, plan.port)


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
