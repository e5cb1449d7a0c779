"""deploy/compose.yaml, read without an engine: what it starts exists, and only this machine can reach it."""

import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cli.main import app
from gateway.settings import GatewaySettings
from producer.settings import ServerSettings
from projector.settings import ProjectorSettings

ROOT = Path(__file__).parents[2]
COMPOSE = ROOT / "deploy" / "compose.yaml"
# The compose specification's keys that the file uses; a misspelt one is refused by the engine only when it starts.
SERVICE_KEYS = {
    "build",
    "cap_drop",
    "command",
    "depends_on",
    "environment",
    "healthcheck",
    "image",
    "ports",
    "read_only",
    "restart",
    "security_opt",
    "stop_grace_period",
    "tmpfs",
    "volumes",
}
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}


@pytest.fixture(scope="module")
def compose() -> dict[str, Any]:
    document: dict[str, Any] = msgspec.yaml.decode(COMPOSE.read_bytes())
    return document


@pytest.fixture(scope="module")
def ledger(compose: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The services that run our own image."""
    return {name: service for name, service in compose["services"].items() if "build" in service}


def test_it_starts_kafka_redis_two_gateways_and_two_projectors(compose: dict[str, Any]) -> None:
    assert set(compose["services"]) == {
        "kafka",
        "redis",
        "gateway-1",
        "gateway-2",
        "projector-1",
        "projector-2",
    }


def test_every_key_is_one_of_the_compose_specification(compose: dict[str, Any]) -> None:
    for service in compose["services"].values():
        assert set(service) <= SERVICE_KEYS
        assert set(service.get("healthcheck", {})) <= HEALTH_KEYS
        for other in service.get("depends_on", []):
            assert other in compose["services"]
        for volume in service.get("volumes", []):
            assert volume.split(":")[0] in compose["volumes"]


def test_every_published_port_is_on_loopback_and_used_once(compose: dict[str, Any]) -> None:
    ports = [port for service in compose["services"].values() for port in service.get("ports", [])]
    assert all(re.fullmatch(r"127\.0\.0\.1:\d+:\d+", port) for port in ports)
    published = [port.split(":")[1] for port in ports]
    assert len(published) == len(set(published)) == 4


def test_every_command_and_flag_exists(ledger: dict[str, dict[str, Any]]) -> None:
    assert len(ledger) == 4
    for service in ledger.values():
        # Parsing refuses an unknown command, flag or value.
        app.parse_args(service["command"], exit_on_error=False, print_error=False)


def test_every_setting_exists(ledger: dict[str, dict[str, Any]]) -> None:
    structs = (ServerSettings, GatewaySettings, ProjectorSettings)
    known = {f"SURFACELOG_{name.upper()}" for struct in structs for name in struct.__struct_fields__}
    for service in ledger.values():
        assert set(service["environment"]) <= known


def test_two_projectors_are_two_members(ledger: dict[str, dict[str, Any]]) -> None:
    members = [service["environment"].get("SURFACELOG_MEMBER") for service in ledger.values()]
    named = [member for member in members if member]
    assert len(named) == len(set(named)) == 2


def test_the_cache_never_evicts(compose: dict[str, Any]) -> None:
    command = compose["services"]["redis"]["command"]
    assert command[command.index("--maxmemory-policy") + 1] == "noeviction"


def test_the_image_holds_every_package_of_the_wheel() -> None:
    recipe = (ROOT / "deploy" / "Containerfile").read_text()
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    project = msgspec.toml.decode((ROOT / "pyproject.toml").read_bytes())
    packages = project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]
    for name in packages:
        assert f"COPY {name} {name}\n" in recipe
        assert f"!{name}" in ignored


def test_an_engine_reads_it_when_one_is_installed() -> None:
    tools = (["docker", "compose"], ["podman-compose"])
    for tool in tools:
        if shutil.which(tool[0]) is None:
            continue
        version = subprocess.run([*tool, "version"], capture_output=True, check=False)
        if version.returncode == 0:
            break
    else:
        pytest.skip("neither docker compose nor podman-compose is installed")
    answer = subprocess.run(
        [*tool, "-f", str(COMPOSE), "config"],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "SURFACELOG_API_KEYS": "local " + "0" * 64},
    )
    assert answer.returncode == 0, answer.stderr
    assert "projector-2" in answer.stdout
