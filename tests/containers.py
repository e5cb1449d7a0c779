"""Kafka and Redis in containers, through testcontainers; the same interface as the native servers in deploy/.

Works with the official images and with local ones (deploy/containers): every setting goes through the
environment, and the host's port is chosen before the start, since a broker must be told its advertised address.
"""

import contextlib
import os
import socket
import time
import uuid
from collections.abc import Callable, Mapping
from typing import Self

import redis
from docker.errors import DockerException  # type: ignore[import-untyped]
from testcontainers.core.container import DockerContainer
from testcontainers.core.docker_client import DockerClient, get_docker_host
from testcontainers.core.network import Network

from deploy.child import Prerequisite, ServerFailed
from deploy.kafka_node import answers, tuning
from deploy.ports import LOOPBACK, free_ports

__all__ = ["KAFKA_IMAGE", "REDIS_IMAGE", "KafkaContainers", "RedisContainer", "engine"]

KAFKA_IMAGE = os.environ.get("SURFACELOG_TEST_KAFKA_IMAGE", "apache/kafka:4.1.0")
REDIS_IMAGE = os.environ.get("SURFACELOG_TEST_REDIS_IMAGE", "redis:8")
READY_S = 120.0
CLIENT_PORT, INTERNAL_PORT, CONTROLLER_PORT = 9092, 29092, 9093


def engine() -> str:
    """The version of the container engine that answers; raises Prerequisite when none does."""
    host = get_docker_host() or "unix:///var/run/docker.sock"
    if host.startswith("unix://"):
        # Asked by hand first: where nobody listens, the Docker library leaves its socket to the garbage collector,
        # and the warning of that would fail a later test.
        with socket.socket(socket.AF_UNIX) as probe:
            try:
                probe.connect(host.removeprefix("unix://"))
            except OSError as error:
                raise Prerequisite(f"no container engine answers at {host}: start Docker or podman") from error
    try:
        client = DockerClient().client
    except DockerException as error:
        raise Prerequisite(f"no container engine answers ({_short(error)}): start Docker or podman") from error
    try:
        return str(client.version().get("Version", ""))
    except DockerException as error:
        raise Prerequisite(f"the container engine does not answer ({_short(error)})") from error
    finally:
        client.close()


class _Box:
    """One container with one published loopback port, which stays the same over kill and restart."""

    def __init__(self, image: str, inner_port: int, port: int) -> None:
        self.port = port
        self.container = DockerContainer(image)
        # The library's own spellings publish on all addresses.
        self.container.ports[f"{inner_port}/tcp"] = (LOOPBACK, port)  # type: ignore[assignment]

    def start(self) -> None:
        try:
            self.container.start()
        except DockerException as error:
            self.stop()
            raise Prerequisite(f"the image {self.container.image} cannot be run: {_short(error)}") from error

    def engine_call(self, verb: str) -> None:
        """`kill`, `start`, `pause` or `unpause`."""
        getattr(self.container.get_wrapped_container(), verb)()

    def stop(self) -> None:
        with contextlib.suppress(DockerException):
            self.container.stop()

    def wait_ready(self, ready: Callable[[], bool]) -> None:
        end = time.monotonic() + READY_S
        while not ready():
            box = self.container.get_wrapped_container()
            box.reload()
            if box.status in {"exited", "dead"} or time.monotonic() > end:
                log = box.logs(tail=20).decode(errors="replace")
                raise ServerFailed(f"{self.container.image} ({box.status}) did not answer:\n{log}")
            time.sleep(0.05)


class KafkaContainers:
    """One or more Kafka nodes, each in a container; see deploy.kafka_cluster.KafkaCluster."""

    def __init__(self, boxes: list[_Box], network: Network | None) -> None:
        self._boxes = boxes
        self._network = network

    @classmethod
    def start(cls, nodes: int) -> Self:
        """Starts the nodes and returns when all answer; Prerequisite: no engine or no image."""
        engine()
        network = Network() if nodes > 1 else None
        if network is not None:
            network.create()
        names = [f"kafka-{i + 1}" for i in range(nodes)] if network else ["localhost"]
        cluster_id = uuid.uuid4().hex[:22]
        cluster = cls([], network)
        try:
            for i, port in enumerate(free_ports(nodes)):
                box = _Box(KAFKA_IMAGE, CLIENT_PORT, port)
                cluster._boxes.append(box)
                if network is not None:
                    box.container.with_network(network).with_network_aliases(names[i])
                for name, value in _broker_settings(i, names, port).items():
                    box.container.with_env("KAFKA_" + name.upper().replace(".", "_"), value)
                box.container.with_env("CLUSTER_ID", cluster_id)
                box.container.with_env("KAFKA_HEAP_OPTS", "-Xms64m -Xmx384m")
                box.start()
            cluster.heal()
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def bootstrap(self) -> str:
        """All nodes' addresses, comma-separated."""
        return ",".join(f"{LOOPBACK}:{box.port}" for box in self._boxes)

    def kill(self, index: int) -> None:
        """Ends node `index` as a crash would."""
        self._boxes[index].engine_call("kill")

    def pause(self, index: int) -> None:
        """Freezes node `index`."""
        self._boxes[index].engine_call("pause")

    def resume(self, index: int) -> None:
        """Lets a paused node go on."""
        self._boxes[index].engine_call("unpause")

    def restart(self, index: int) -> None:
        """Starts node `index` again and waits until it answers."""
        box = self._boxes[index]
        with contextlib.suppress(DockerException):
            box.engine_call("kill")
        box.engine_call("start")
        box.wait_ready(lambda: answers(f"{LOOPBACK}:{box.port}", 1))

    def heal(self) -> None:
        """Resumes and restarts whatever a fault test left, and waits until every node sees all others."""
        for box in self._boxes:
            state = box.container.get_wrapped_container()
            state.reload()
            if state.status == "paused":
                box.engine_call("unpause")
            elif state.status != "running":
                box.engine_call("start")
        for box in self._boxes:
            box.wait_ready(lambda box=box: answers(f"{LOOPBACK}:{box.port}", len(self._boxes)))  # type: ignore[misc]

    def stop(self) -> None:
        """Removes the containers, their data and their network."""
        for box in self._boxes:
            box.stop()
        if self._network is not None:
            self._network.remove()


class RedisContainer:
    """One Redis or Valkey server in a container. `url`: for `redis.from_url`."""

    def __init__(self, box: _Box) -> None:
        self._box = box

    @classmethod
    def start(cls) -> Self:
        """Starts it and returns when it answers; raises Prerequisite (no engine, no image) or ServerFailed."""
        engine()
        box = _Box(REDIS_IMAGE, 6379, free_ports(1)[0])
        options = {"save": "", "appendonly": "no", "maxmemory-policy": "noeviction"}
        # Both official images put their server in front of a command that begins with a dash.
        box.container.with_command([word for name, value in options.items() for word in (f"--{name}", value)])
        server = cls(box)
        try:
            box.start()
            box.wait_ready(lambda: _pings(server.url))
        except BaseException:
            box.stop()
            raise
        return server

    @property
    def url(self) -> str:
        """`redis://127.0.0.1:port/0`."""
        return f"redis://{LOOPBACK}:{self._box.port}/0"

    def stop(self) -> None:
        """Removes the container."""
        self._box.stop()


def _broker_settings(index: int, names: list[str], port: int) -> Mapping[str, str]:
    voters = ",".join(f"{i + 1}@{name}:{CONTROLLER_PORT}" for i, name in enumerate(names))
    return {
        "node.id": str(index + 1),
        "process.roles": "broker,controller",
        "controller.quorum.voters": voters,
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CLIENT://:{CLIENT_PORT},INTERNAL://:{INTERNAL_PORT},CONTROLLER://:{CONTROLLER_PORT}",
        "advertised.listeners": f"CLIENT://{LOOPBACK}:{port},INTERNAL://{names[index]}:{INTERNAL_PORT}",
        "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INTERNAL",
        "log.dirs": "/tmp/kraft-combined-logs",  # noqa: S108
        **tuning(len(names)),
    }


def _pings(url: str) -> bool:
    with contextlib.suppress(redis.RedisError), redis.Redis.from_url(url, socket_timeout=2) as client:
        return bool(client.ping())
    return False


def _short(error: BaseException) -> str:
    return str(error).splitlines()[0][:200]
