"""A Valkey cluster on loopback for the tests: masters that share the slots, each with replicas if asked for."""

import contextlib
import re
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Self

import redis

from deploy.child import ServerFailed
from deploy.ports import LOOPBACK, free_ports
from deploy.valkey import ValkeyServer

__all__ = ["ValkeyCluster"]

SLOTS = 16384
READY_S = 30.0


class ValkeyCluster:
    """`url` names the first master, from which a cluster client finds the others. `servers`: masters first."""

    def __init__(self, servers: list[ValkeyServer], masters: int) -> None:
        self.servers = servers
        self.masters = masters

    @classmethod
    def start(cls, folder: Path, *, masters: int = 3, replicas: int = 0) -> Self:
        """Starts `masters` servers with even shares of the slots and `replicas` more for each, with no data.

        Server `masters + r * masters + i` replicates master `i`. Returns when every server sees all slots served
        and every replica has a copy.
        """
        shutil.rmtree(folder, ignore_errors=True)
        count = masters * (1 + replicas)
        ports = free_ports(2 * count)
        cluster = cls([], masters)
        try:
            for i in range(count):
                options = {
                    "cluster-enabled": "yes",
                    "cluster-port": str(ports[count + i]),
                    # A dead master is noticed within about this time, then replaced.
                    "cluster-node-timeout": "2000",
                    # A first copy waits five seconds for others that could share it.
                    "repl-diskless-sync-delay": "0",
                }
                cluster.servers.append(ValkeyServer.start(folder / f"server-{i}", port=ports[i], options=options))
            cluster._join(ports[:count], ports[count:])
        except BaseException:
            cluster.stop()
            raise
        return cluster

    @property
    def url(self) -> str:
        """Where a cluster client starts."""
        return self.servers[0].url

    def stop(self) -> None:
        """Ends all servers at once."""
        for server in self.servers:
            if server.child is not None:
                server.child.kill()

    def _join(self, ports: list[int], bus_ports: list[int]) -> None:
        clients = [server.client() for server in self.servers]
        with contextlib.ExitStack() as stack:
            for client in clients:
                stack.enter_context(client)
            for i, client in enumerate(clients[: self.masters]):
                first, last = i * SLOTS // self.masters, (i + 1) * SLOTS // self.masters - 1
                _cluster(client, "ADDSLOTSRANGE", first, last)
                # Different epochs from the start, or the masters spend seconds on telling theirs apart.
                _cluster(client, "SET-CONFIG-EPOCH", i + 1)
            for port, bus_port in zip(ports[1:], bus_ports[1:], strict=True):
                _cluster(clients[0], "MEET", LOOPBACK, port, bus_port)
            _await(lambda: all(_known(client) == len(clients) for client in clients), "the servers to meet")
            for i, client in enumerate(clients[self.masters :]):
                node = _cluster(clients[i % self.masters], "MYID")
                _cluster(client, "REPLICATE", node)
            _await(lambda: all(_serves(client) for client in clients), "all slots")
            _await(lambda: all(_follows(client) for client in clients[self.masters :]), "the replicas")


def _cluster(client: redis.Redis, *words: str | int | bytes) -> bytes:
    answer: bytes = client.execute_command("CLUSTER", *words)  # type: ignore[no-untyped-call]
    return answer


def _known(client: redis.Redis) -> int:
    match = re.search(rb"cluster_known_nodes:(\d+)", _cluster(client, "INFO"))
    return int(match[1]) if match else 0


def _serves(client: redis.Redis) -> bool:
    return b"cluster_state:ok" in _cluster(client, "INFO")


def _follows(client: redis.Redis) -> bool:
    status: str = client.info("replication").get("master_link_status", "")
    return status == "up"


def _await(done: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + READY_S
    while not done():
        if time.monotonic() > end:
            raise ServerFailed(f"the Valkey cluster waited {READY_S:.0f} s for {what}")
        time.sleep(0.05)
