"""Servers for a measurement: those of the environment, else Kafka and Valkey started for it; and a projector."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from deploy.kafka_cluster import KafkaCluster
from deploy.valkey import ValkeyServer
from producer.ids import mint_id
from producer.secret import Secret
from producer.settings import ServerSettings

__all__ = ["bench_redis", "bench_servers", "projector"]


@contextmanager
def bench_servers(partitions: int) -> Iterator[ServerSettings]:
    """Settings of servers that answer, with a topic of their own. One Kafka node, its JVM fully compiling."""
    kafka = os.environ.get("SURFACELOG_KAFKA")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="surfacelog-bench-")))
        if kafka is None:
            cluster = KafkaCluster.start(1, folder / "kafka", heap_mb=512, fast_start=False)
            stack.callback(cluster.stop)
            kafka = cluster.bootstrap
        redis = stack.enter_context(bench_redis())
        yield ServerSettings(kafka=kafka, redis=Secret(redis), topic=f"bench-{mint_id()}", partitions=partitions)


@contextmanager
def bench_redis() -> Iterator[str]:
    """The URL of a Redis or Valkey that answers."""
    if given := os.environ.get("SURFACELOG_REDIS"):
        yield given
        return
    with tempfile.TemporaryDirectory(prefix="surfacelog-bench-") as folder:
        server = ValkeyServer.start(Path(folder) / "valkey")
        try:
            yield server.url
        finally:
            server.stop()


@contextmanager
def projector(servers: ServerSettings) -> Iterator[int]:
    """A projector process on these servers; its process id. The topic must exist."""
    assert servers.kafka is not None
    assert servers.redis is not None
    environment = os.environ | {
        "SURFACELOG_KAFKA": servers.kafka,
        "SURFACELOG_REDIS": servers.redis.reveal(),
        "SURFACELOG_TOPIC": servers.topic,
        "SURFACELOG_PARTITIONS": str(servers.partition_count),
        "SURFACELOG_GROUP": servers.topic,
    }
    command = [sys.executable, "-m", "gateway.cli.main", "project", "--log-level", "warning"]
    process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE)  # noqa: S603 - our own command
    try:
        assert process.stdout is not None
        process.stdout.readline()
        yield process.pid
    finally:
        process.terminate()
        process.wait(30)
