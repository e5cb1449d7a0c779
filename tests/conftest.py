"""Fixtures: real servers, started once for the run when a test first asks for them (see tests/servers.py)."""

import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from deploy.valkey import ValkeyServer
from deploy.valkey_cluster import ValkeyCluster
from tests import servers


def pytest_addoption(parser: pytest.Parser) -> None:
    """`--servers`: where Kafka and Redis come from."""
    parser.addoption(
        "--servers",
        choices=servers.MODES,
        default="auto",
        help="auto: SURFACELOG_TEST_KAFKA / SURFACELOG_TEST_REDIS, else containers, else native",
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says on which servers the run took place."""
    for line in dict.fromkeys(servers.used):
        terminalreporter.write_line(f"servers: {line}")


@pytest.fixture(scope="session")
def servers_mode(request: pytest.FixtureRequest) -> str:
    """`auto`, `containers` or `native`."""
    return str(request.config.getoption("--servers"))


@pytest.fixture(scope="session")
def kafka(servers_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """Bootstrap servers of a Kafka that all tests share: use topics of your own."""
    with servers.kafka_address(servers_mode, tmp_path_factory.mktemp("kafka")) as address:
        yield address


@pytest.fixture(scope="session")
def redis(servers_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """URL of a Redis or Valkey that all tests share: use keys of your own, and never flush it."""
    with servers.redis_address(servers_mode, tmp_path_factory.mktemp("redis")) as address:
        yield address


@pytest.fixture(scope="session")
def _one_broker(servers_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Brokers]:
    with servers.brokers(servers_mode, 1, tmp_path_factory.mktemp("kafka1")) as cluster:
        yield cluster


@pytest.fixture
def kafka_broker(_one_broker: servers.Brokers) -> Iterator[servers.Brokers]:
    """A single Kafka node, apart from the shared one, that the test may kill and pause; healed for the next."""
    yield _one_broker
    _one_broker.heal()


@pytest.fixture(scope="session")
def _three_brokers(servers_mode: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[servers.Brokers]:
    with servers.brokers(servers_mode, 3, tmp_path_factory.mktemp("kafka3")) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster3(_three_brokers: servers.Brokers) -> Iterator[servers.Brokers]:
    """Three Kafka nodes whose nodes the test may kill and pause; all are back for the next test."""
    yield _three_brokers
    _three_brokers.heal()


@pytest.fixture(scope="session")
def redis_cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ValkeyCluster]:
    """A Valkey cluster of three masters that all tests share."""
    with servers.redis_cluster_url(tmp_path_factory.mktemp("redis-cluster")) as cluster:
        yield cluster


@pytest.fixture
def redis_server(tmp_path: Path) -> Iterator[ValkeyServer]:
    """A Valkey of the test's own, which it may flush, kill, pause and restart; native in every mode."""
    with servers.own_redis(tmp_path / "redis") as server:
        yield server


@pytest.fixture
def unique() -> str:
    """A name for a topic, group or key prefix that no other test has."""
    return f"t-{uuid.uuid4().hex[:12]}"
