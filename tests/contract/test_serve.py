"""Two gateways and a projector as real processes on real Kafka and Redis: one ledger, whichever door is taken."""

import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.contract.gateway_room import said, user
from tests.server_process import ServerProcess, running_server


@pytest.fixture(scope="module")
def gateways(kafka: str, redis: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[ServerProcess]]:
    environment = {
        "SURFACELOG_KAFKA": kafka,
        "SURFACELOG_REDIS": redis,
        "SURFACELOG_TOPIC": f"serve-{os.getpid()}",
        "SURFACELOG_PARTITIONS": "4",
        "SURFACELOG_GROUP": f"serve-{os.getpid()}",
    }
    with ExitStack() as stack:
        # The first one makes the topic.
        made = [
            stack.enter_context(running_server(tmp_path_factory.mktemp("unused"), environment=environment))
            for _ in range(2)
        ]
        stack.enter_context(running_projector(environment))
        yield made


@contextmanager
def running_projector(environment: dict[str, str]) -> Iterator[None]:
    process = subprocess.Popen(
        [sys.executable, "-m", "gateway.cli.main", "project"],
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    assert process.stdout is not None
    assert "projects" in process.stdout.readline()
    try:
        yield
    finally:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=30)


@pytest.fixture
def clients(gateways: list[ServerProcess]) -> Iterator[list[httpx.Client]]:
    with ExitStack() as stack:
        yield [stack.enter_context(httpx.Client(base_url=gateway.url, timeout=30)) for gateway in gateways]


def test_what_one_gateway_wrote_the_other_reads_at_once(clients: list[httpx.Client], unique: str) -> None:
    one, other = clients
    assert one.post("/v1/sessions", json={"id": unique, "checks": "surface"}).status_code == 201
    for number in range(20):
        writer, reader = (one, other) if number % 2 else (other, one)
        done = writer.post(f"/v1/sessions/{unique}/events", json=user(str(number))).json()
        assert done["seq"] == number
        found = reader.get(f"/v1/sessions/{unique}/messages", params={"min_seq": done["nextSeq"]}).json()
        assert said(found["messages"]) == [str(seq) for seq in range(number + 1)]
    assert other.get("/v1/sessions/nobody/head").json()["code"] == "no-session"


def test_old_events_come_from_kafka_page_by_page(clients: list[httpx.Client], unique: str) -> None:
    one, other = clients
    # Neighbours of the same topic lie between the events of the session that is read.
    for name in (unique, f"{unique}-b"):
        one.post("/v1/sessions", json={"id": name, "checks": "surface"})
    for number in range(60):
        for name in (unique, f"{unique}-b"):
            one.post(f"/v1/sessions/{name}/events", json=[user(f"{number} {place}") for place in range(3)])
    found: list[dict[str, Any]] = []
    start: int | None = 0
    while start is not None:
        page = other.get(f"/v1/sessions/{unique}/events", params={"from": start, "limit": 50}).json()
        found += page["events"]
        start = page["next"]
    assert [event["seq"] for event in found] == list(range(180))
    assert [event["data"]["id"] for event in found[:4]] == ["0 0", "0 1", "0 2", "1 0"]


def test_a_live_tail_at_one_gateway_follows_what_another_writes(clients: list[httpx.Client], unique: str) -> None:
    one, other = clients
    one.post("/v1/sessions", json={"id": unique, "checks": "surface"})

    def write() -> None:
        for number in range(50):
            one.post(f"/v1/sessions/{unique}/events", json=user(str(number)))

    writer = threading.Thread(target=write)
    seen: list[str] = []
    with other.stream("GET", f"/v1/sessions/{unique}/stream", params={"from": 0}) as answer:
        writer.start()
        for line in answer.iter_lines():
            if line.startswith("id: "):
                seen.append(line[4:])
            if len(seen) == 50:
                break
    writer.join()
    assert seen == [str(number) for number in range(50)]


def test_an_answer_names_no_server_when_none_is_there(tmp_path: Path) -> None:
    environment = {"SURFACELOG_KAFKA": "127.0.0.1:9", "SURFACELOG_REDIS": "redis://127.0.0.1:9"}
    process = ServerProcess(tmp_path, environment=environment | {"SURFACELOG_START_TIMEOUT_MS": "2000"}).launch()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 1
    assert "Traceback" not in errors
