"""One to five Kafka nodes on loopback, for `surfacelog cluster` and for the tests: one path for both.

Single nodes can be killed, paused and restarted; clients keep their addresses.
"""

import base64
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Self

import msgspec

from deploy.jars import bring_jars, find_java
from deploy.kafka_node import LOG4J, KafkaNode, Member
from deploy.ports import free_ports

__all__ = ["KafkaCluster"]


class _Plan(msgspec.Struct, frozen=True):
    cluster_id: str
    members: tuple[Member, ...]


class KafkaCluster:
    """A running cluster. `bootstrap`: the addresses of all nodes, for `bootstrap.servers`."""

    def __init__(self, folder: Path, plan: _Plan) -> None:
        self.folder = folder
        self.nodes = [
            KafkaNode(folder / f"node-{member.node}", member, plan.members, plan.cluster_id)
            for member in plan.members
        ]
        self._java: list[str] = []
        self._detached = False

    @classmethod
    def start(
        cls,
        nodes: int,
        folder: Path,
        *,
        heap_mb: int = 256,
        fast_start: bool = True,
        detached: bool = False,
        report: Callable[[str], None] = lambda _: None,
    ) -> Self:
        """Starts (or continues) the cluster of `folder` and returns when every node answers.

        `fast_start` keeps the JVM at its first compiler, which starts sooner and runs slower: leave it off for
        measurements. `detached` nodes outlive this process. Raises Prerequisite or ServerFailed; then no node is
        left running.
        """
        cluster = cls(folder, cls._plan(folder, nodes))
        cluster._detached = detached
        cluster._java = _java_command(heap_mb, fast_start, report)
        report("starting Kafka")
        try:
            cluster._boot()
        except BaseException:
            cluster.kill_all()
            raise
        return cluster

    @classmethod
    def find(cls, folder: Path) -> Self | None:
        """The cluster that was planned in `folder`, its running processes taken over; None when there is none."""
        try:
            plan = msgspec.json.decode((folder / "cluster.json").read_bytes(), type=_Plan)
        except OSError:
            return None
        cluster = cls(folder, plan)
        for node in cluster.nodes:
            node.find()
        return cluster

    @property
    def bootstrap(self) -> str:
        """All nodes' addresses, comma-separated."""
        return ",".join(node.address for node in self.nodes)

    def running(self) -> int:
        """How many nodes' processes run."""
        return sum(node.running() for node in self.nodes)

    def kill(self, index: int) -> None:
        """Ends node `index` (from 0) as a crash would."""
        child = self.nodes[index].child
        assert child is not None
        child.kill()

    def pause(self, index: int) -> None:
        """Freezes node `index`: its connections stay open and nobody answers."""
        child = self.nodes[index].child
        assert child is not None
        child.pause()

    def resume(self, index: int) -> None:
        """Lets a paused node go on."""
        child = self.nodes[index].child
        assert child is not None
        child.resume()

    def restart(self, index: int) -> None:
        """Starts node `index` again (killing it first if it runs) and waits until it answers."""
        node = self.nodes[index]
        if node.child is not None:
            node.child.kill()
        node.launch(self._java, detached=self._detached)
        node.wait_ready(1)

    def heal(self) -> None:
        """Resumes and restarts whatever a fault test left, and waits until every node sees all others."""
        for index, node in enumerate(self.nodes):
            if node.running():
                self.resume(index)
            else:
                node.launch(self._java, detached=self._detached)
        for node in self.nodes:
            node.wait_ready(len(self.nodes))

    def stop(self, grace_s: float = 15.0) -> bool:
        """Ends all nodes, the last ones with SIGKILL after `grace_s` in all; True when all ended by themselves."""
        children = [node.child for node in self.nodes if node.child is not None]
        for child in children:
            child.terminate()
        end = time.monotonic() + grace_s
        return all([child.stop(max(0.0, end - time.monotonic())) for child in children])

    def kill_all(self) -> None:
        """Ends all nodes at once; for data that nobody needs again."""
        for node in self.nodes:
            if node.child is not None:
                node.child.kill()

    def memory_bytes(self) -> list[int]:
        """Resident memory of each running node."""
        sizes = [node.child.memory_bytes() for node in self.nodes if node.child is not None]
        return [size for size in sizes if size is not None]

    def _boot(self) -> None:
        idle = [node.find() for node in self.nodes]
        idle = [node for node in idle if not node.running()]
        for node, process in [(node, node.begin_format(self._java)) for node in idle]:
            node.end_format(process)
        for node in idle:
            node.launch(self._java, detached=self._detached)
        for node in self.nodes:
            node.wait_ready(len(self.nodes))

    @staticmethod
    def _plan(folder: Path, nodes: int) -> _Plan:
        """The plan that the folder holds, or a new one; a folder's number of nodes is fixed."""
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "cluster.json"
        if path.exists():
            plan = msgspec.json.decode(path.read_bytes(), type=_Plan)
            if len(plan.members) == nodes:
                return plan
            raise ValueError(f"{folder} holds a cluster of {len(plan.members)} node(s): name another folder")
        ports = free_ports(2 * nodes)
        members = tuple(Member(i + 1, ports[2 * i], ports[2 * i + 1]) for i in range(nodes))
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).rstrip(b"=").decode()
        plan = _Plan(cluster_id, members)
        path.write_bytes(msgspec.json.encode(plan))
        return plan


def _java_command(heap_mb: int, fast_start: bool, report: Callable[[str], None]) -> list[str]:
    java = find_java()
    jars = bring_jars(report)
    flags = ["-Xms64m", f"-Xmx{heap_mb}m", "-XX:+UseSerialGC", "-XX:-UsePerfData"]
    if fast_start:
        flags.append("-XX:TieredStopAtLevel=1")
    return [java, *flags, f"-Dlog4j2.configurationFile={LOG4J}", "-cp", f"{jars}/*"]
