"""The embedded ledger as one real process: nothing is lost over crashes, nothing is left behind."""

import contextlib
import io
import json
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest

from gateway.cli.main import main
from surfacelog.formats.stored import StoredLog
from tests.contract.gateway_room import said, user
from tests.server_process import ServerProcess, running_server

EXAMPLES = Path(__file__).parents[2] / "examples"


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServerProcess]:
    with running_server(tmp_path_factory.mktemp("ledger")) as made:
        yield made


class Done(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


def surfacelog(server: ServerProcess, *words: str) -> Done:
    """A client command, run in this process so that it need not load anew each time."""
    output, errors = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2))
    code = 0
    with contextlib.redirect_stdout(output), contextlib.redirect_stderr(errors):
        try:
            with pytest.MonkeyPatch.context() as patch:
                patch.setenv("SURFACELOG_URL", server.url)
                main(words)
        except SystemExit as ending:
            code = int(ending.code or 0)
    texts = [stream.buffer.getvalue().decode() for stream in (output, errors)]
    return Done(code, *texts)


def test_the_command_is_installed_and_ends_with_the_same_codes(server: ServerProcess) -> None:
    for words, code in ((["--version"], 0), (["nonsense"], 2), (["head", "nobody"], 1)):
        command = [sys.executable, "-m", "gateway.cli.main", *words]
        done = subprocess.run(command, env={**os.environ, "SURFACELOG_URL": server.url}, capture_output=True)
        assert done.returncode == code, done.stderr


@pytest.mark.parametrize("name", ["compacted", "resumed", "format0"])
def test_an_imported_log_reads_as_its_client_had_it(server: ServerProcess, name: str) -> None:
    file = EXAMPLES / f"{name}.jsonl.zst"
    expected = json.loads((EXAMPLES / f"{name}.expect.json").read_text())
    done = surfacelog(server, "import", str(file), "--session", name, "--json")
    assert done.returncode == 0, done.stderr
    with httpx.Client(base_url=f"{server.url}/v1/sessions/{name}") as client:
        assert client.get("/surface").json()["nodes"] == expected["nodes"]
        head = client.get("/head").json()
        assert (head["seq"], head["replaceGeneration"]) == (expected["events"], expected["replaceGeneration"])
        assert head["transcript"] == expected["transcript"]
        assert len(client.get("/messages").json()["messages"]) == len(expected["messages"])
        lines = list(all_events(client))
    for event, line in zip(StoredLog(file.read_bytes()), lines, strict=True):
        assert (event.seq, event.time) == (line["seq"], line["time"])
        assert json.loads(bytes(event.data)) == line["data"]
    again = surfacelog(server, "import", str(file), "--session", name, "--json")
    assert json.loads(again.stdout)["appended"] == 0


def all_events(client: httpx.Client) -> Iterator[dict[str, Any]]:
    start: int | None = 0
    while start is not None:
        page = client.get("/events", params={"from": start}).json()
        yield from page["events"]
        start = page["next"]


@pytest.mark.parametrize("name", ["resumed", "format0"])
def test_an_exported_session_is_imported_again_as_it_was(server: ServerProcess, tmp_path: Path, name: str) -> None:
    first, second = f"out-{name}", f"in-{name}"
    surfacelog(server, "import", str(EXAMPLES / f"{name}.jsonl.zst"), "--session", first)
    file = tmp_path / "out.jsonl"
    assert surfacelog(server, "export", first, str(file)).returncode == 0
    assert surfacelog(server, "export", first).stdout == file.read_text()
    assert surfacelog(server, "export", first, str(file)).returncode == 2
    assert surfacelog(server, "import", str(file), "--session", second).returncode == 0
    ours, theirs = (httpx.get(f"{server.url}/v1/sessions/{session}/events").content for session in (first, second))
    assert ours == theirs
    headers = [httpx.get(f"{server.url}/v1/sessions/{session}").json()["header"] for session in (first, second)]
    assert headers[0] | {"id": second} == headers[1]


def test_a_session_with_types_of_its_own_is_moved_by_naming_them_again(
    server: ServerProcess, tmp_path: Path
) -> None:
    own, file = {"id": "own", "vocabulary": ["x/one", "x/two"]}, tmp_path / "own.jsonl"
    assert httpx.post(f"{server.url}/v1/sessions", json=own).status_code == 201
    assert httpx.post(f"{server.url}/v1/sessions/own/events", json={"type": "x/two", "data": 1}).status_code == 201
    told = surfacelog(server, "export", "own", str(file)).stderr
    assert "type-unknown" in surfacelog(server, "import", str(file), "--session", "lacking").stderr
    options = told.split("import it with ")[1].split()
    assert options == ["--vocabulary", "x/one", "--vocabulary", "x/two"]
    assert surfacelog(server, "import", str(file), "--session", "moved", *options).returncode == 0
    assert httpx.get(f"{server.url}/v1/sessions/moved/head").json()["seq"] == 1


def test_a_broken_off_import_goes_on_where_it_stopped(server: ServerProcess, tmp_path: Path) -> None:
    lines = [json.dumps({"type": "session", "version": 4, "id": "x", "createdAt": 1, "cwd": "/"})]
    lines += [json.dumps(user(str(seq)) | {"seq": seq, "time": seq}) for seq in range(40)]
    half, whole, other = tmp_path / "half.jsonl", tmp_path / "whole.jsonl", tmp_path / "other.jsonl"
    half.write_text("\n".join(lines[:18]) + "\n")
    whole.write_text("\n".join(lines) + "\n")
    other.write_text("\n".join([*lines[:17], lines[17].replace('"16"', '"no"'), *lines[18:]]) + "\n")
    for file, appended in ((half, 17), (whole, 23)):
        done = surfacelog(server, "import", str(file), "--session", "resumed-import", "--batch", "5", "--json")
        assert json.loads(done.stdout)["appended"] == appended, done.stderr
    refused = surfacelog(server, "import", str(other), "--session", "resumed-import")
    assert refused.returncode == 0
    surfacelog(server, "import", str(half), "--session", "another-log")
    refused = surfacelog(server, "import", str(other), "--session", "another-log")
    assert refused.returncode == 1
    assert "session-exists" in refused.stderr


def test_the_command_line_creates_appends_and_reads(server: ServerProcess) -> None:
    assert surfacelog(server, "create", "cli", "--title", "by hand").stdout == "cli\n"
    data = json.dumps(user("hello")["data"])
    assert surfacelog(server, "append", "cli", "user/message", data).stdout == "seq 0\n"
    assert surfacelog(server, "append", "cli", "user/message", data, "--expected-seq", "0").returncode == 1
    told = surfacelog(server, "append", "cli", "user/message", data, "--key", "k", "--json")
    assert json.loads(told.stdout)["nextSeq"] == 2
    assert "hello" in surfacelog(server, "messages", "cli").stdout
    assert json.loads(surfacelog(server, "messages", "cli", "--json").stdout)["seq"] == 2
    assert len(surfacelog(server, "transcript", "cli", "--json").stdout.splitlines()) == 2
    assert json.loads(surfacelog(server, "head", "cli", "--json").stdout)["header"]["title"] == "by hand"
    assert "by hand" in surfacelog(server, "head", "cli").stdout


def test_the_command_line_says_by_its_code_what_went_wrong(server: ServerProcess, tmp_path: Path) -> None:
    assert surfacelog(server, "messages").returncode == 2
    assert surfacelog(server, "nonsense").returncode == 2
    assert surfacelog(server, "append", "s").returncode == 2
    assert surfacelog(server, "append", "s", "user/message", "{").returncode == 2
    assert surfacelog(server, "import", str(tmp_path / "none")).returncode == 2
    nobody = surfacelog(server, "messages", "nobody")
    assert (nobody.returncode, nobody.stdout) == (1, "")
    assert "no-session" in nobody.stderr
    away = surfacelog(server, "messages", "s", "--url", "http://127.0.0.1:9")
    assert away.returncode == 1
    assert "surfacelog serve" in away.stderr


def frames(answer: httpx.Response) -> Iterator[tuple[int, dict[str, Any]]]:
    seq = -1
    for line in answer.iter_lines():
        if line.startswith("id: "):
            seq = int(line[4:])
        elif line.startswith("data: "):
            yield seq, json.loads(line[6:])


def test_a_live_tail_brings_every_event_once_and_resumes_behind_the_last(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.post("/v1/sessions", json={"id": "tail", "checks": "surface"})

        def write() -> None:
            with httpx.Client(base_url=server.url, timeout=30) as other:
                for number in range(200):
                    other.post("/v1/sessions/tail/events", json=user(str(number)))

        writer = threading.Thread(target=write)
        writer.start()
        seen: list[int] = []
        # Taken up anew after every 30 events, as a browser does.
        while len(seen) < 200:
            headers = {"Last-Event-ID": str(seen[-1])} if seen else {}
            query = {} if seen else {"from": 0}
            with client.stream("GET", "/v1/sessions/tail/stream", headers=headers, params=query) as answer:
                assert answer.headers["content-type"].startswith("text/event-stream")
                for seq, event in frames(answer):
                    assert (event["seq"], event["data"]["id"]) == (seq, str(seq))
                    seen.append(seq)
                    if len(seen) % 30 == 0 or len(seen) == 200:
                        break
        writer.join()
    assert seen == list(range(200))


def test_a_reader_that_does_not_read_costs_no_more_than_a_page(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.post("/v1/sessions", json={"id": "slow", "checks": "surface"})
        for number in range(40):
            client.post("/v1/sessions/slow/events", json=user(str(number) * 400_000))
        before = memory_bytes(server)
        with client.stream("GET", "/v1/sessions/slow/stream", params={"from": 0}):
            for _ in range(20):
                assert client.get("/v1/sessions/slow/head").json()["seq"] == 40
                time.sleep(0.05)
            assert memory_bytes(server) - before < 24 << 20


def test_a_crash_loses_nothing_and_leaves_no_child(tmp_path: Path) -> None:
    with running_server(tmp_path / "ledger") as server:
        crash_and_go_on(server)
    assert not (tmp_path / "ledger" / "address").exists()


def crash_and_go_on(server: ServerProcess) -> None:
    with httpx.Client() as client:
        client.post(f"{server.url}/v1/sessions", json={"id": "s", "checks": "surface"})
        acknowledged = 0
        for number in range(50):
            answer = client.post(f"{server.url}/v1/sessions/s/events", json=user(str(number)))
            acknowledged += answer.status_code == 201
    child = valkey_of(server)
    server.kill()
    wait_gone(child)
    server.start()
    found = httpx.get(f"{server.url}/v1/sessions/s/messages", params={"wait_ms": 10_000}, timeout=20)
    assert said(found.json()["messages"]) == [str(number) for number in range(acknowledged)]
    assert httpx.post(f"{server.url}/v1/sessions/s/events", json=user("on")).json()["seq"] == acknowledged
    child = valkey_of(server)
    assert server.stop() == 0
    wait_gone(child)


def valkey_of(server: ServerProcess) -> int:
    told = json.loads((server.folder / "valkey" / "valkey.pid.json").read_text())
    pid: int = told["pid"]
    os.kill(pid, 0)
    return pid


def wait_gone(pid: int) -> None:
    until = time.monotonic() + 10
    while time.monotonic() < until:
        try:
            os.kill(pid, 0)
        except ProcessLookupError:
            return
        time.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
    raise AssertionError("the cache server outlived its parent")


def test_a_second_process_over_the_same_data_is_refused_clearly(server: ServerProcess) -> None:
    second = server.launch()
    _, errors = second.communicate(timeout=30)
    assert second.returncode == 1
    assert "in use by process" in errors
    assert httpx.get(f"{server.url}/readyz").status_code == 200


def test_a_port_that_is_taken_is_refused_clearly(server: ServerProcess, tmp_path: Path) -> None:
    other = ServerProcess(tmp_path / "other")
    second = other.launch("--port", server.url.rpartition(":")[2])
    _, errors = second.communicate(timeout=30)
    assert second.returncode in (1, 2)
    assert "--port" in errors


def test_strangers_are_not_let_in_without_credentials(tmp_path: Path) -> None:
    second = ServerProcess(tmp_path / "open").launch("--host", "0.0.0.0")  # noqa: S104
    _, errors = second.communicate(timeout=30)
    assert second.returncode == 1
    assert "SURFACELOG_API_KEYS" in errors
    assert not (tmp_path / "open").exists()


def test_a_server_with_keys_asks_for_one(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    keys.write_text(f"acme {sha256(b'secret-key').hexdigest()}\n")
    with running_server(tmp_path / "ledger", environment={"SURFACELOG_API_KEYS_FILE": str(keys)}) as server:
        assert httpx.post(f"{server.url}/v1/sessions", json={"id": "s"}).status_code == 401
        headers = {"Authorization": "Bearer secret-key"}
        assert httpx.post(f"{server.url}/v1/sessions", json={"id": "s"}, headers=headers).status_code == 201


def test_an_answer_does_not_wait_for_the_clients_acknowledgement(server: ServerProcess) -> None:
    times = []
    with httpx.Client(base_url=server.url) as client:
        for _ in range(20):
            begun = time.perf_counter()
            client.get("/healthz")
            times.append(time.perf_counter() - begun)
    # With Nagle's algorithm every one of them takes 40 ms, on any machine.
    assert min(times) < 0.03


def test_a_large_body_is_refused_without_being_kept(server: ServerProcess) -> None:
    with httpx.Client(base_url=server.url, timeout=30) as client:
        client.post("/v1/sessions", json={"id": "large"})
        before = memory_bytes(server)
        for content in (b" " * (40 << 20), spaces(40, [])):
            answer = client.post("/v1/sessions/large/events", content=content)
            assert (answer.status_code, answer.json()["code"]) == (413, "too-large")
        assert memory_bytes(server) - before < 30 << 20


def test_a_body_without_end_is_cut_off(server: ServerProcess) -> None:
    sent: list[int] = []
    with httpx.Client(base_url=server.url, timeout=30) as client, contextlib.suppress(httpx.TransportError):
        answer = client.post("/v1/sessions/large/events", content=spaces(1000, sent))
        assert answer.status_code == 413
    assert len(sent) < 150


def spaces(count: int, sent: list[int]) -> Iterator[bytes]:
    for number in range(count):
        sent.append(number)
        yield b" " * (1 << 20)


def memory_bytes(server: ServerProcess) -> int:
    assert server.process is not None
    status = Path(f"/proc/{server.process.pid}/status").read_text()
    return int(next(line for line in status.splitlines() if line.startswith("VmRSS")).split()[1]) * 1024
