"""One Apache Kafka node in KRaft mode on loopback, broker and controller in one small JVM.

Its ports, storage id and settings stay in its folder, so that a later start continues with the same data.
"""

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Self

import msgspec
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from deploy.child import Child, ServerFailed, wait_until
from deploy.ports import LOOPBACK

__all__ = ["KafkaNode", "Member", "answers", "tuning"]

LOG4J = Path(__file__).parent / "kafka" / "log4j2.properties"
READY_S = 90.0


class Member(msgspec.Struct, frozen=True):
    """A node's place in the cluster: id from 1 on, and its two ports."""

    node: int
    port: int
    controller_port: int


def tuning(nodes: int) -> dict[str, str]:
    """Settings of every node of a development cluster: small, quick to start, a dead node noticed in 3 s."""
    replicas = min(3, nodes)
    insync = max(1, replicas - 1)
    return {
        "auto.create.topics.enable": "false",
        "default.replication.factor": str(replicas),
        "min.insync.replicas": str(insync),
        # The default of 9 s leaves a dead leader's partitions without one for 10 s.
        "broker.session.timeout.ms": "3000",
        "broker.heartbeat.interval.ms": "500",
        "group.initial.rebalance.delay.ms": "0",
        # Classic groups may use 6 s by default; groups of the newer protocol only with these.
        "group.consumer.min.session.timeout.ms": "6000",
        "group.consumer.session.timeout.ms": "6000",
        "group.consumer.min.heartbeat.interval.ms": "1000",
        "group.consumer.heartbeat.interval.ms": "2000",
        "offsets.topic.num.partitions": "4",
        "offsets.topic.replication.factor": str(replicas),
        "transaction.state.log.num.partitions": "4",
        "transaction.state.log.replication.factor": str(replicas),
        "transaction.state.log.min.isr": str(insync),
        "share.coordinator.state.topic.num.partitions": "1",
        "share.coordinator.state.topic.replication.factor": str(replicas),
        "share.coordinator.state.topic.min.isr": str(insync),
        "num.network.threads": "2",
        "num.io.threads": "4",
        # The default is 128 MB, half of this JVM's heap.
        "log.cleaner.dedupe.buffer.size": str(8 << 20),
    }


def answers(address: str, nodes: int) -> bool:
    """Whether the broker at `address` (`host:port`) answers a metadata request that names `nodes` live brokers,
    itself among them."""
    client: dict[str, str | int | float | bool] = {
        "bootstrap.servers": address,
        "socket.timeout.ms": 2000,
        "reconnect.backoff.max.ms": 200,
        # Refused connections are expected while it starts.
        "log_level": 0,
    }
    try:
        brokers = AdminClient(client).list_topics(timeout=2).brokers.values()
    except KafkaException:
        return False
    return len(brokers) >= nodes and any(address == f"{broker.host}:{broker.port}" for broker in brokers)


def _properties(member: Member, members: Sequence[Member], data: Path) -> dict[str, str]:
    return {
        "process.roles": "broker,controller",
        "node.id": str(member.node),
        # Static voters: with a dynamic quorum the first node would form one alone and the others wait to be added.
        "controller.quorum.voters": ",".join(f"{m.node}@{LOOPBACK}:{m.controller_port}" for m in members),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://{LOOPBACK}:{member.port},CONTROLLER://{LOOPBACK}:{member.controller_port}",
        "advertised.listeners": f"CLIENT://{LOOPBACK}:{member.port}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "CLIENT",
        "log.dirs": str(data),
        **tuning(len(members)),
    }


class KafkaNode:
    """A node with its folder; running or not."""

    def __init__(self, folder: Path, member: Member, members: Sequence[Member], cluster_id: str) -> None:
        self.folder = folder
        self.member = member
        self.child: Child | None = None
        self._settings = folder / "server.properties"
        self._members = members
        self._cluster_id = cluster_id

    @property
    def address(self) -> str:
        """Where clients reach this node, `host:port`."""
        return f"{LOOPBACK}:{self.member.port}"

    def find(self) -> Self:
        """Takes over the process that an earlier run left, if it still runs."""
        self.child = Child.find(self.folder / "pid.json", self.folder / "server.log")
        return self

    def running(self) -> bool:
        """Whether the node's process runs."""
        return self.child is not None and self.child.alive()

    def begin_format(self, java: Sequence[str]) -> subprocess.Popen[bytes] | None:
        """Starts to prepare the storage, unless that was done before; see `end_format`."""
        data = self.folder / "data"
        data.mkdir(parents=True, exist_ok=True)
        lines = _properties(self.member, self._members, data).items()
        self._settings.write_text("".join(f"{name}={value}\n" for name, value in lines))
        if (data / "meta.properties").exists():
            return None
        # One word: an id may begin with a dash, which as a word of its own would read as an option.
        command = [*java, "kafka.tools.StorageTool", "format", f"--cluster-id={self._cluster_id}"]
        command += ["-c", str(self._settings)]
        with (self.folder / "format.log").open("wb") as output:
            return subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=output, stderr=output)  # noqa: S603

    def end_format(self, process: subprocess.Popen[bytes] | None) -> None:
        """Waits for what `begin_format` started; raises ServerFailed."""
        if process is not None and process.wait(READY_S) != 0:
            raise ServerFailed("formatting failed:\n" + (self.folder / "format.log").read_text(errors="replace"))

    def launch(self, java: Sequence[str], *, detached: bool) -> None:
        """Starts the process; it does not answer yet."""
        self.child = Child.start(
            [*java, "kafka.Kafka", str(self._settings)],
            pid_file=self.folder / "pid.json",
            log=self.folder / "server.log",
            detached=detached,
        )

    def wait_ready(self, nodes: int, timeout_s: float = READY_S) -> None:
        """Waits until this node answers and knows `nodes` live brokers, itself among them."""
        assert self.child is not None
        what = f"Kafka node {self.member.node}"
        wait_until(lambda: answers(self.address, nodes), self.child, what, timeout_s)
