"""Servers as child processes: found again, ended, never left behind; and the background cluster built on them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import redis

from deploy import cluster
from deploy.child import Child, Prerequisite, ServerFailed
from deploy.jars import bring_jars, find_java
from deploy.kafka_cluster import KafkaCluster
from deploy.ports import FIRST, LAST, free_ports
from deploy.valkey import SOCKET_PATH_BYTES_MAX, ValkeyServer

ROOT = Path(__file__).parents[2]


def sleeper(folder: Path) -> Child:
    return Child.start(["sleep", "600"], pid_file=folder / "pid.json", log=folder / "log")


def runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state not in "ZX"


def gone_within(pid: int, seconds: float) -> bool:
    end = time.monotonic() + seconds
    while runs(pid) and time.monotonic() < end:
        time.sleep(0.02)
    return not runs(pid)


def run_cli(*words: str, environment: dict[str, str] | None = None) -> subprocess.CompletedProcess[str]:
    code = "import sys; from gateway.cli.cluster import app; sys.argv[0] = 'cluster'; app()"
    return subprocess.run(
        [sys.executable, "-c", code, *words],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        env={**os.environ, **(environment or {})},
        timeout=180,
    )


def test_a_child_is_found_again_by_its_pid_file(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    found = Child.find(tmp_path / "pid.json", tmp_path / "log")
    assert found is not None
    assert found.pid == child.pid
    child.kill()
    assert Child.find(tmp_path / "pid.json", tmp_path / "log") is None


def test_a_recycled_pid_is_not_taken_for_the_child(tmp_path: Path) -> None:
    stranger = sleeper(tmp_path)
    known = json.loads((tmp_path / "pid.json").read_text())
    known["started"] = known["started"][:-1] + ("1" if known["started"][-1] != "1" else "2")
    (tmp_path / "pid.json").write_text(json.dumps(known))
    assert Child.find(tmp_path / "pid.json", tmp_path / "log") is None
    Child(stranger.pid, known["started"], tmp_path / "pid.json", tmp_path / "log", None).kill()
    assert stranger.alive()
    stranger.kill()


def test_a_damaged_pid_file_counts_as_none(tmp_path: Path) -> None:
    (tmp_path / "pid.json").write_text('{"pid":')
    assert Child.find(tmp_path / "pid.json", tmp_path / "log") is None


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel ends a child with its parent only on Linux")
def test_a_child_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    code = (
        "import sys, time; from pathlib import Path; from deploy.child import Child; p = Path(sys.argv[1]);"
        "print(Child.start(['sleep', '600'], pid_file=p / 'pid.json', log=p / 'log').pid, flush=True);"
        "time.sleep(600)"
    )
    parent = subprocess.Popen([sys.executable, "-c", code, str(tmp_path)], stdout=subprocess.PIPE, cwd=ROOT)
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    assert runs(pid)
    parent.kill()
    parent.wait()
    parent.stdout.close()
    assert gone_within(pid, 5)


def test_a_paused_child_is_stopped_as_well(tmp_path: Path) -> None:
    child = sleeper(tmp_path)
    child.pause()
    assert child.stop(5)
    assert not child.alive()


def test_a_child_that_ignores_the_request_is_killed(tmp_path: Path) -> None:
    command = ["sh", "-c", "trap '' TERM; echo ready; while :; do sleep 0.1; done"]
    child = Child.start(command, pid_file=tmp_path / "pid.json", log=tmp_path / "log")
    while "ready" not in (tmp_path / "log").read_text():
        time.sleep(0.01)
    assert not child.stop(0.3)
    assert not child.alive()


def test_ports_lie_outside_the_range_that_the_kernel_hands_out() -> None:
    ports = free_ports(20)
    assert len(set(ports)) == 20
    assert all(FIRST <= port < LAST for port in ports)


def test_a_missing_java_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Prerequisite, match="Java 17"):
        find_java()


def test_an_old_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    java = tmp_path / "java"
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(Prerequisite, match="found 11"):
        find_java()


def fake_maven(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    (folder / "bin").mkdir()
    maven = folder / "bin" / "mvn"
    maven.write_text(f"#!/bin/sh\n{script}\n")
    maven.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder / 'bin'}:{os.environ['PATH']}")


def test_a_failing_maven_leaves_no_half_filled_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    fake_maven(tmp_path, "echo '[ERROR] no network'; exit 1", monkeypatch)
    with pytest.raises(ServerFailed, match="no network"):
        bring_jars(cache=tmp_path / "cache")
    assert not [path for path in (tmp_path / "cache").iterdir() if path.is_dir()]


def test_two_runs_at_once_fetch_the_jars_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    script = f"""
echo run >> {tmp_path}/runs
sleep 0.3
for word; do case $word in -DoutputDirectory=*) mkdir -p "${{word#*=}}"; touch "${{word#*=}}/a.jar";; esac; done"""
    fake_maven(tmp_path, script, monkeypatch)
    code = (
        f"from pathlib import Path; from deploy.jars import bring_jars; bring_jars(cache=Path('{tmp_path}/cache'))"
    )
    both = [subprocess.Popen([sys.executable, "-c", code], cwd=ROOT) for _ in range(2)]
    assert [process.wait(30) for process in both] == [0, 0]
    assert (tmp_path / "runs").read_text() == "run\n"
    assert [path.name for path in bring_jars(cache=tmp_path / "cache").iterdir()] == ["a.jar"]


def test_an_orphan_of_an_earlier_run_is_ended_when_its_folder_is_used_again(tmp_path: Path) -> None:
    left = ValkeyServer.start(tmp_path, detached=True)
    with left.client() as client:
        client.set("old", "1")
    fresh = ValkeyServer.start(tmp_path)
    assert not left.running()
    with fresh.client() as client:
        assert client.get("old") is None
    fresh.stop()


def test_an_orphan_whose_pid_file_is_lost_is_found_by_its_socket(tmp_path: Path) -> None:
    left = ValkeyServer.start(tmp_path, detached=True)
    (tmp_path / "valkey.pid.json").unlink()
    fresh = ValkeyServer.start(tmp_path)
    assert not left.running()
    fresh.stop()


def test_a_deep_folder_still_gets_a_socket(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)
    server = ValkeyServer.start(folder)
    assert len(bytes(server.socket)) <= SOCKET_PATH_BYTES_MAX
    with redis.Redis.from_url(server.url) as client:
        assert client.ping()
    server.stop()
    assert not server.socket.exists()


def test_what_a_server_saved_is_there_after_a_kill(tmp_path: Path) -> None:
    server = ValkeyServer.start(tmp_path, options={"appendonly": "yes", "appendfsync": "always"})
    with server.client() as client:
        client.set("kept", "1")
    server.kill()
    server.restart()
    with server.client() as client:
        assert client.get("kept") == b"1"
    server.stop()


def test_a_server_that_cannot_start_says_why(tmp_path: Path) -> None:
    with pytest.raises(ServerFailed, match="maxmemory-policy"):
        ValkeyServer.start(tmp_path, options={"maxmemory-policy": "nonsense"})


def test_a_folder_without_a_cluster_has_no_status(tmp_path: Path) -> None:
    assert cluster.status(tmp_path) is None
    assert not cluster.down(tmp_path)
    answer = run_cli("status", "--folder", str(tmp_path))
    assert answer.returncode == 3


def test_up_without_java_fails_with_the_reason(tmp_path: Path) -> None:
    answer = run_cli("up", "--folder", str(tmp_path), environment={"PATH": str(tmp_path), "JAVA_HOME": ""})
    assert answer.returncode == 1
    assert "install a JRE, or use Docker" in answer.stderr


@pytest.fixture
def native_kafka() -> None:
    try:
        find_java()
        bring_jars()
    except Prerequisite as error:
        if os.environ.get("CI") == "true":
            raise
        pytest.skip(str(error))


@pytest.mark.usefixtures("native_kafka")
def test_up_is_idempotent_and_down_ends_everything_but_the_data(tmp_path: Path) -> None:
    folder = ("--folder", str(tmp_path))
    try:
        first = json.loads(run_cli("up", *folder, "--json").stdout)
        again = json.loads(run_cli("up", *folder, "--json").stdout)
        assert {**again, "memory_bytes": 0} == {**first, "memory_bytes": 0}
        assert run_cli("status", *folder).returncode == 0

        lost = KafkaCluster.find(tmp_path / "kafka")
        assert lost is not None
        lost.kill(0)
        assert run_cli("status", *folder).returncode == 1

        answer = run_cli("up", *folder)
        assert answer.stdout.splitlines()[1:] == [
            f"export SURFACELOG_KAFKA={first['kafka']}",
            f"export SURFACELOG_REDIS={first['redis']}",
        ]
        other = run_cli("up", *folder, "--nodes", "3")
        assert other.returncode == 1
        assert "1 node(s)" in other.stderr
    finally:
        pids = [json.loads(path.read_text())["pid"] for path in tmp_path.rglob("*pid.json")]
        ended = run_cli("down", *folder)
    assert (ended.returncode, ended.stdout) == (0, "ended\n")
    assert len(pids) == 2
    assert not any(runs(pid) for pid in pids)
    assert run_cli("status", *folder).returncode == 3
    assert (tmp_path / "kafka" / "node-1" / "data" / "meta.properties").exists()


@pytest.mark.usefixtures("native_kafka")
def test_a_killed_up_leaves_nothing_that_down_does_not_find(tmp_path: Path) -> None:
    code = f"from pathlib import Path; from deploy import cluster; cluster.up(Path('{tmp_path}'), 1, print)"
    starting = subprocess.Popen([sys.executable, "-c", code], cwd=ROOT, stdout=subprocess.DEVNULL)
    pid_file = tmp_path / "kafka" / "node-1" / "pid.json"
    while not pid_file.exists():
        assert starting.poll() is None
        time.sleep(0.02)
    starting.send_signal(signal.SIGKILL)
    starting.wait()
    pid = json.loads(pid_file.read_text())["pid"]
    assert runs(pid)
    assert cluster.down(tmp_path)
    assert not runs(pid)
