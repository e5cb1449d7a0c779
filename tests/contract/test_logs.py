"""The example logs of a real client, against what the client's own implementation makes of them."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.inspect import inspect, inspect_log
from surfacelog.formats import StoredLog, line_of
from surfacelog.repair import repair
from surfacelog.session import Session

EXAMPLES = Path(__file__).parents[2] / "examples"
LOGS = ["resumed", "compacted", "format0"]


def expectation(name: str) -> dict[str, Any]:
    found = json.loads((EXAMPLES / f"{name}.expect.json").read_bytes())
    assert isinstance(found, dict)
    return found


def without_text(closers: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The wording of an error is ours; that there is one is not."""
    for closer in closers:
        message = closer["data"].get("message")
        if message is not None:
            assert message["content"]
            message["content"] = "text"
    return closers


@pytest.mark.parametrize("name", LOGS)
def test_the_log_holds_its_expectation(name: str) -> None:
    told = inspect_log((EXAMPLES / f"{name}.jsonl.zst").read_bytes())
    expected = expectation(name)
    for found in (told, expected):
        found["closers"] = without_text(found.get("closers", []))
    assert {field: told[field] for field in expected} == expected


@pytest.mark.parametrize("name", LOGS)
def test_inspect_prints_the_fields_of_the_expectation_under_the_same_names(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert inspect(EXAMPLES / f"{name}.jsonl.zst", json=True) == 0
    told = json.loads(capsys.readouterr().out)
    for field, expected in expectation(name).items():
        if field != "closers":
            assert told[field] == expected, field


@pytest.mark.parametrize("name", LOGS)
def test_nothing_of_the_log_is_out_of_place(name: str) -> None:
    told = inspect_log((EXAMPLES / f"{name}.jsonl.zst").read_bytes())
    assert (told["notices"], told["lifecycle"], told["pendingInbox"], told["inboxFaults"]) == ([], [], [], [])


@pytest.mark.parametrize("name", LOGS)
def test_a_log_that_is_cut_anywhere_is_whole_again_after_its_repair(name: str) -> None:
    log = StoredLog((EXAMPLES / f"{name}.jsonl.zst").read_bytes())
    events = list(log)
    for cut in range(1, len(events), 1 + len(events) // 60):
        head = events[:cut]
        closers = repair(head, log.contract)
        session = Session.load(map(line_of, head + closers), log.header)
        assert session.next_seq == cut + len(closers)
        assert repair([*head, *closers], log.contract) == []


def test_inspect_says_what_is_wrong_and_how_it_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(tmp_path / "none.jsonl") == 2
    damaged = tmp_path / "damaged.jsonl"
    good = b'{"type":"todo/write","seq":0,"time":1,"data":{}}\n'
    damaged.write_bytes(b'{"type":"session","version":4,"id":"s","createdAt":1}\n{"type":\n' + good)
    capsys.readouterr()
    assert inspect(damaged, json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["code"], told["detail"]["row"]) == ("malformed", 1)
    assert inspect(damaged, recover=True) == 0
    assert "1 good rows of an unfinished turn" in capsys.readouterr().out


def test_inspect_knows_the_types_that_it_is_told_of(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    log = tmp_path / "own.jsonl"
    header = b'{"type":"session","version":4,"id":"s","createdAt":1}\n'
    log.write_bytes(header + b'{"type":"own/note","seq":0,"time":1,"data":{}}\n')
    for vocabulary, code in (
        (None, "type-unknown"),
        (["own/other"], "type-unknown"),
        (["user/message"], "malformed"),
    ):
        assert inspect(log, vocabulary=vocabulary, json=True) == 1
        assert json.loads(capsys.readouterr().out)["code"] == code
    assert inspect(log, vocabulary=["own/other", "own/note"], json=True) == 0
    assert json.loads(capsys.readouterr().out)["events"] == 1


def test_inspect_prints_for_people(capsys: pytest.CaptureFixture[str]) -> None:
    assert inspect(EXAMPLES / "compacted.jsonl.zst") == 0
    told = capsys.readouterr().out
    for part in ("2499", "326 events", "replaces 294", "call_8_1 TOOL_OUTCOME_UNKNOWN", "turn/end interrupted"):
        assert part in told
