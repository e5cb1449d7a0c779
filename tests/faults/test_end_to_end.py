"""Two writing processes, the same 50 sessions, two projectors, real Kafka and real Redis: one history."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.services import services_for
from gateway.settings import GatewaySettings
from producer.cache import Cache
from producer.connect import open_cache, open_log
from producer.log import EventLog
from producer.producer import Producer
from producer.settings import ServerSettings, read_settings
from surfacelog.accept import accept
from surfacelog.header import read_header
from surfacelog.keys import session_of
from surfacelog.records import read_record
from surfacelog.session import Session
from surfacelog.state import SessionState
from tests.faults.fleet_writer import TENANT, session_name

SESSIONS = 50
TURNS = 12
ROOT = Path(__file__).resolve().parents[2]
END_S = 120.0


@pytest.fixture
def environment(kafka: str, redis: str, unique: str) -> dict[str, str]:
    own = {"SURFACELOG_KAFKA": kafka, "SURFACELOG_REDIS": redis, "SURFACELOG_TOPIC": unique}
    kept = {name: value for name, value in os.environ.items() if not name.startswith("SURFACELOG_")}
    return kept | own | {"SURFACELOG_PARTITIONS": "8"}


def _spawn(environment: dict[str, str], output: Path, *command: str) -> subprocess.Popen[bytes]:
    with output.open("wb") as out, output.with_suffix(".err").open("wb") as err:
        return subprocess.Popen([sys.executable, *command], env=environment, cwd=ROOT, stdout=out, stderr=err)


def _projector(environment: dict[str, str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    return _spawn(environment, folder / f"{name}.out", "-m", "gateway.cli.main", "project", "--member", name)


def _writer(environment: dict[str, str], folder: Path, name: str) -> subprocess.Popen[bytes]:
    command = ("-m", "tests.faults.fleet_writer", name, str(SESSIONS), str(TURNS))
    return _spawn(environment, folder / f"{name}.out", *command)


@pytest.mark.parametrize("killed", [False, True], ids=["all workers live", "one worker is killed"])
async def test_two_writers_and_two_projectors_make_one_history(
    environment: dict[str, str], tmp_path: Path, killed: bool
) -> None:
    settings = read_settings(ServerSettings, environment)
    log, cache = await open_log(settings), await open_cache(settings)
    projectors = [_projector(environment, tmp_path, name) for name in ("projector-1", "projector-2")]
    writers = [_writer(environment, tmp_path, name) for name in ("writer-1", "writer-2")]
    try:
        if killed:
            await _until_half_written(tmp_path)
            projectors[0].send_signal(signal.SIGKILL)
        await asyncio.gather(*(asyncio.to_thread(writer.wait, END_S) for writer in writers))
        assert [writer.returncode for writer in writers] == [0, 0], _errors(tmp_path)
        told = [msgspec.json.decode(line) for path in tmp_path.glob("writer-?.out") for line in _lines(path)]
        await _check(log, cache, told)
    finally:
        for process in (*writers, *projectors):
            process.kill()
            process.wait()
        await cache.close()
        await log.close()


def _lines(path: Path) -> list[bytes]:
    return [line for line in path.read_bytes().split(b"\n") if line]


def _errors(folder: Path) -> str:
    return "\n".join(path.read_text()[-2000:] for path in sorted(folder.glob("*.err")))


async def _until_half_written(folder: Path) -> None:
    until = time.monotonic() + END_S
    while time.monotonic() < until:
        if len(_lines(folder / "writer-1.out")) > SESSIONS * TURNS // 3:
            return
        await asyncio.sleep(0.05)
    raise AssertionError(f"the writers did not get on: {_errors(folder)}")


async def _check(log: EventLog, cache: Cache, told: list[dict[str, Any]]) -> None:
    truths, lines_of = await _replayed(log)
    assert set(truths) == {session_name(number) for number in range(SESSIONS)}
    acknowledged = [answer for answer in told if "seq" in answer]
    assert len(acknowledged) >= 2 * SESSIONS * TURNS
    assert sum(len(answer["ids"]) for answer in acknowledged) == sum(map(len, lines_of.values()))
    for answer in acknowledged:
        for place, name in enumerate(answer["ids"]):
            data = msgspec.json.decode(lines_of[answer["session"]][answer["seq"] + place])["data"]
            assert (data.get("id") or data.get("message", {}).get("id") or "") == name, answer
    producer = Producer(log, cache)
    services = services_for(GatewaySettings(), log, cache, producer, now_ms=lambda: 0)
    for name, truth in truths.items():
        await _check_session(services, name, truth, lines_of[name])
    await services.close()


async def _replayed(log: EventLog) -> tuple[dict[str, Session], dict[str, list[bytes]]]:
    """Every session as the in-memory reference makes it of the accepted commits."""
    states: dict[str, SessionState] = {}
    lines_of: dict[str, list[bytes]] = {}
    ends = await log.ends(range(log.partitions), 10_000)
    for partition, end in ends.items():
        at = 0
        while at < end:
            for record in await log.read(partition, at, 500, 10_000):
                at = record.offset + 1
                assert record.key is not None
                name = session_of(record.key)[1]
                state = states.setdefault(name, SessionState())
                verdict = accept(state, read_record(record.headers, record.value), record.offset)
                if verdict.outcome == "accepted" and verdict.plans:
                    assert record.value is not None
                    lines_of.setdefault(name, []).extend(record.value.rstrip(b"\n").split(b"\n"))
    truths = {name: Session.load(lines, read_header(states[name].header_raw)) for name, lines in lines_of.items()}
    for name, truth in truths.items():
        assert truth.next_seq == states[name].next_seq
    return truths, lines_of


async def _check_session(services: Any, name: str, truth: Session, lines: list[bytes]) -> None:
    answer = await services.reads.messages(TENANT, name, min_seq=truth.next_seq, wait_ms=30_000)
    assert answer.seq == truth.next_seq == len(lines)
    assert answer.generation == truth.surface.content_generation
    assert _inside(answer.body, b'"messages":[') == b",".join(message.json for message in truth.messages)
    surface = await services.reads.surface(TENANT, name)
    assert msgspec.json.decode(surface.body)["nodes"] == truth.surface.nodes
    events: list[msgspec.Raw] = []
    while len(events) < len(lines):
        page = await services.pages.events(TENANT, name, len(events), len(lines), 1000)
        events += msgspec.json.decode(page.body, type=_Page).events
    assert [bytes(event) for event in events] == lines
    seqs: list[int] = []
    while len(seqs) < len(truth.transcript):
        page = await services.pages.transcript(TENANT, name, len(seqs), len(truth.transcript), 1000)
        seqs += [msgspec.json.decode(event)["seq"] for event in msgspec.json.decode(page.body, type=_Page).events]
    assert seqs == list(truth.transcript)


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]


def _inside(body: bytes, start: bytes) -> bytes:
    return body[body.index(start) + len(start) : body.rindex(b"]")]
