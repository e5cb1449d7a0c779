"""Which servers the tests take: given ones, else containers, else native ones; and what happens without any."""

from pathlib import Path

import pytest

from deploy.child import Prerequisite
from tests import servers


@pytest.fixture
def bare_machine(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Neither Java nor Maven nor a container engine, and nothing given."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody.sock")
    monkeypatch.setattr(servers, "used", [])
    for name in ("JAVA_HOME", "CI", "SURFACELOG_TEST_KAFKA", "SURFACELOG_TEST_REDIS"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("bare_machine")
def test_given_servers_come_first(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("SURFACELOG_TEST_KAFKA", "127.0.0.1:1")
    monkeypatch.setenv("SURFACELOG_TEST_REDIS", "redis://127.0.0.1:2/0")
    with servers.kafka_address("auto", tmp_path) as kafka, servers.redis_address("auto", tmp_path) as redis:
        assert (kafka, redis) == ("127.0.0.1:1", "redis://127.0.0.1:2/0")


@pytest.mark.usefixtures("bare_machine")
def test_native_servers_that_were_asked_for_win_over_given_ones(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("SURFACELOG_TEST_REDIS", "redis://127.0.0.1:2/0")
    with servers.redis_address("native", tmp_path) as redis:
        assert redis != "redis://127.0.0.1:2/0"


@pytest.mark.usefixtures("bare_machine")
def test_without_an_engine_the_native_server_is_next_and_the_run_says_why(tmp_path: Path) -> None:
    with servers.redis_address("auto", tmp_path):
        assert "no container engine answers" in servers.used[0]
        assert "native" in servers.used[1]


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("mode", ["auto", "containers", "native"])
def test_a_laptop_without_any_skips_with_the_reason(mode: str, tmp_path: Path) -> None:
    with pytest.raises(pytest.skip.Exception, match="Java" if mode != "containers" else "engine"):
        servers.kafka_address(mode, tmp_path).__enter__()


@pytest.mark.usefixtures("bare_machine")
@pytest.mark.parametrize("mode", ["auto", "containers", "native"])
def test_ci_without_any_fails(mode: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CI", "true")
    with pytest.raises(Prerequisite):
        servers.kafka_address(mode, tmp_path).__enter__()
