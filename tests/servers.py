"""Where the tests' Kafka and Redis come from: the environment, containers, or native processes, in this order.

A laptop that has none of them skips the test with the reason; with CI=true that is an error.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn, Protocol

import pytest

from deploy.child import Prerequisite
from deploy.kafka_cluster import KafkaCluster
from deploy.valkey import ValkeyServer
from deploy.valkey_cluster import ValkeyCluster
from tests.containers import KafkaContainers, RedisContainer

__all__ = [
    "MODES",
    "Brokers",
    "brokers",
    "kafka_address",
    "own_redis",
    "redis_address",
    "redis_cluster_url",
    "used",
]

MODES = ("auto", "containers", "native")

# What was started, for the line at the end of the run: a run on containers should be seen to be one.
used: list[str] = []


class Brokers(Protocol):
    """A Kafka cluster of the tests' own, whose nodes (from 0) may be killed and paused."""

    @property
    def bootstrap(self) -> str:
        """For `bootstrap.servers`."""
        ...

    def kill(self, index: int) -> None:
        """Ends a node as a crash would."""
        ...

    def pause(self, index: int) -> None:
        """Freezes a node."""
        ...

    def resume(self, index: int) -> None:
        """Lets a paused node go on."""
        ...

    def restart(self, index: int) -> None:
        """Starts a node again and waits until it answers."""
        ...

    def heal(self) -> None:
        """Brings all nodes back and waits until they see each other."""
        ...


@contextmanager
def kafka_address(mode: str, folder: Path) -> Iterator[str]:
    """The bootstrap servers of a Kafka that all tests share."""
    if mode == "auto" and (given := os.environ.get("SURFACELOG_TEST_KAFKA")):
        used.append(f"Kafka at {given} (given)")
        yield given
        return
    with brokers(mode, 1, folder) as cluster:
        yield cluster.bootstrap


@contextmanager
def brokers(mode: str, nodes: int, folder: Path) -> Iterator[Brokers]:
    """A fresh cluster of `nodes` nodes that only the tests of this run use."""
    if mode != "native":
        try:
            containers = KafkaContainers.start(nodes)
        except Prerequisite as error:
            _refuse(mode, error)
        else:
            used.append(f"Kafka, {nodes} node(s) in containers, at {containers.bootstrap}")
            try:
                yield containers
            finally:
                containers.stop()
            return
    try:
        cluster = KafkaCluster.start(nodes, folder)
    except Prerequisite as error:
        _missing(error)
    used.append(f"Kafka, {nodes} native node(s), at {cluster.bootstrap}")
    try:
        yield cluster
    finally:
        cluster.kill_all()
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def redis_address(mode: str, folder: Path) -> Iterator[str]:
    """The URL of a Redis or Valkey that all tests share; each test uses keys of its own."""
    if mode == "auto" and (given := os.environ.get("SURFACELOG_TEST_REDIS")):
        used.append(f"Redis at {given} (given)")
        yield given
        return
    if mode != "native":
        try:
            container = RedisContainer.start()
        except Prerequisite as error:
            _refuse(mode, error)
        else:
            used.append(f"Redis in a container, at {container.url}")
            try:
                yield container.url
            finally:
                container.stop()
            return
    try:
        server = ValkeyServer.start(folder, port=0)
    except Prerequisite as error:
        _missing(error)
    used.append(f"Valkey, native, at {server.url}")
    try:
        yield server.url
    finally:
        server.stop()


@contextmanager
def redis_cluster_url(folder: Path, replicas: int = 0) -> Iterator[ValkeyCluster]:
    """A Valkey cluster of three masters; native in every mode, since it tells clients one address for each node,
    which must be the one that the tests reach."""
    try:
        cluster = ValkeyCluster.start(folder, masters=3, replicas=replicas)
    except Prerequisite as error:
        _missing(error)
    used.append(f"Valkey cluster, native, at {cluster.url}")
    try:
        yield cluster
    finally:
        cluster.stop()


@contextmanager
def own_redis(folder: Path) -> Iterator[ValkeyServer]:
    """A Valkey of the caller's own, to flush, kill, pause and restart; native in every mode."""
    try:
        server = ValkeyServer.start(folder, port=0)
    except Prerequisite as error:
        _missing(error)
    try:
        yield server
    finally:
        server.stop()


def _refuse(mode: str, error: Prerequisite) -> None:
    """Containers that were asked for and cannot be had end the run; otherwise the native servers are next."""
    if mode == "containers":
        _missing(error)
    used.append(f"no containers: {error}")


def _missing(error: Prerequisite) -> NoReturn:
    if os.environ.get("CI") == "true":
        raise error
    pytest.skip(str(error))
