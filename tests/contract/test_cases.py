"""Every given failure case, run as `surfacelog conformance` runs it; and proof that the runner can fail."""

import json
from pathlib import Path
from typing import Any

import pytest

from gateway.cli.cases import check_case
from gateway.cli.conformance import check_paths, conformance

CASES = Path(__file__).parent / "cases"
OFFLINE = {"append", "load", "load-lines", "repair", "fork", "plan"}


def case(number: str) -> dict[str, Any]:
    (path,) = CASES.glob(f"{number}-*.json")
    found = json.loads(path.read_bytes())
    assert isinstance(found, dict)
    return found


@pytest.mark.parametrize("path", sorted(CASES.glob("*.json")), ids=lambda path: path.stem)
def test_the_case_holds_or_is_skipped_by_name(path: Path) -> None:
    outcome = check_case(path.read_bytes(), path.name)
    assert [str(problem) for problem in outcome.problems] == []
    assert outcome.unchecked == []
    assert outcome.outcome == ("passed" if outcome.op in OFFLINE else "skipped")
    assert outcome.op in outcome.reason or outcome.outcome == "passed"


def test_only_the_stored_infinity_is_decided_by_the_second_answer() -> None:
    assert [outcome.id for outcome in check_paths(CASES) if outcome.ours] == ["47-infinity-and-nan"]


@pytest.mark.parametrize(
    ("number", "name", "wrong"),
    [
        ("01", "surface", [2, 18]),
        ("01", "messages", [[2, "user"], [18, "user"], [21, "user"]]),
        ("01", "fold", "refuse@18"),
        ("01", "session", "refuse"),
        ("01", "lifecycle", "refuse"),
        ("13", "lifecycle", "ok"),
        ("13", "lifecycle", "refuse@7"),
        ("27", "vocabulary", "refuse@2"),
        ("27", "inbox", "ok"),
        ("27", "pendingInbox", ["u1"]),
        ("27", "closers", [["step/end"]]),
        ("39", "session", "ok"),
        ("39", "session", "refuse@3"),
        ("03", "appends", ["ok"] * 7),
        ("03", "appends", ["ok"]),
        ("03", "surface", [2, 9, 20]),
        ("11", "lifecycleOfLog", "ok"),
        ("47", "rawAppends", ["refuse"] * 6),
        ("47", "importable", "ok"),
        ("43", "lines", "refuse@1"),
        ("71", "lines", "refuse@2"),
        ("71", "kept", 3),
        ("23", "closers", [["step/end"], ["turn/end"]]),
        ("35", "closers", [["tool/result", "pay", "TOOL_OUTCOME_UNKNOWN", [5]], ["step/end"], ["turn/end"]]),
        ("19", "own", {"8": ["session/end-seed", "step/end", "turn/end"]}),
        ("19", "own", {"9": []}),
        ("21", "pendingInbox", {"7": []}),
        ("17", "surface", {"15": [2, 14]}),
        ("07", "legalCutsBefore", [2, 3, 4, 8, 13]),
        ("07", "illegalCutsBefore", [13]),
        ("69", "lastN", {"2": [9, 10]}),
        ("69", "startsInsidePair", {"1": True}),
    ],
)
def test_a_wrong_expectation_fails_and_is_named(number: str, name: str, wrong: Any) -> None:
    given = case(number)
    given["expect"][name] = wrong
    given["expect"].pop("ours", None)
    outcome = check_case(json.dumps(given).encode(), "planted")
    assert outcome.outcome == "failed"
    assert any(problem.what.startswith(name) for problem in outcome.problems), outcome.problems


def test_an_expectation_that_is_not_understood_is_named_not_passed_over() -> None:
    given = case("01")
    given["expect"]["colour"] = "blue"
    assert check_case(json.dumps(given).encode(), "x").unchecked == ["colour"]
    given["expect"] = {"colour": "blue"}
    outcome = check_case(json.dumps(given).encode(), "x")
    assert (outcome.outcome, "colour" in outcome.reason) == ("skipped", True)


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{", "{}", '{"op":"load"}', '{"op":"load","expect":[]}', '{"op":"load","expect":{},"events":1}'],
)
def test_a_file_that_is_no_case_fails(text: str) -> None:
    assert check_case(text.encode(), "x").outcome == "failed"


def test_a_case_may_choose_its_contract_and_checks() -> None:
    given = case("29")
    given["checks"] = "paired"
    given["expect"] = {"session": "refuse@4", "surface": [2, 3]}
    assert check_case(json.dumps(given).encode(), "x").outcome == "passed"
    given["contract"] = "v0"
    given["expect"] = {"session": "refuse@2", "vocabulary": "refuse@2"}
    assert check_case(json.dumps(given).encode(), "x").outcome == "passed"


def test_a_stored_event_that_is_not_lossless_is_refused_at_its_place() -> None:
    given = (
        '{"op":"load","events":[{"type":"turn/start","data":{}},{"type":"todo/write","data":1e400}],"expect":%s}'
    )
    for expect, outcome in [('{"session":"refuse@1"}', "passed"), ('{"session":"ok"}', "failed")]:
        assert check_case((given % expect).encode(), "x").outcome == outcome


def rows(*kinds: str) -> list[str]:
    return [
        json.dumps({"type": kind, "seq": seq, "time": 1, "data": {}}) if kind else "torn {"
        for seq, kind in enumerate(kinds)
    ]


@pytest.mark.parametrize(
    ("lines", "expect"),
    [
        (["todo/write", ""], {"lines": "ok", "kept": 1}),
        (["todo/write", "", "turn/end"], {"lines": "refuse@1"}),
        (["todo/write", "", "todo/write"], {"lines": "ok", "kept": 1}),
        (["", "turn/end"], {"lines": "refuse@0"}),
        ([], {"lines": "ok", "kept": 0, "surface": []}),
        (["todo/write", "user/message"], {"lines": "ok", "kept": 2, "importable": "refuse@1"}),
    ],
)
def test_stored_rows_are_read_as_their_client_reads_them(lines: list[str], expect: dict[str, Any]) -> None:
    given = {"id": "rows", "op": "load-lines", "lines": rows(*lines), "expect": expect}
    assert check_case(json.dumps(given).encode(), "x").problems == []


def test_stored_rows_may_begin_with_a_header_that_names_their_contract() -> None:
    header = json.dumps({"type": "session", "version": 0, "id": "s", "createdAt": 1})
    data = {"turn": 1, "step": 1, "index": 0, "dt": [0], "texts": ["a", "b"]}
    packed = json.dumps({"type": "text-chunks", "seq0": 0, "time0": 1, "data": data})
    given = {"op": "load-lines", "lines": [header, packed], "expect": {"lines": "ok", "kept": 2, "session": "ok"}}
    assert check_case(json.dumps(given).encode(), "x").problems == []


def test_the_command_counts_prints_and_exits(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert conformance(CASES) == 0
    assert "skipped 25-resume-marker-collides: race" in capsys.readouterr().out
    wrong = case("01")
    wrong["expect"]["surface"] = [1]
    (tmp_path / "wrong.json").write_text(json.dumps(wrong))
    (tmp_path / "log.expect.json").write_text("{}")
    (tmp_path / "wrong.jsonl").write_text('{"id":"v"}\n\nno json\n')
    assert conformance(tmp_path) == 1
    lines = capsys.readouterr().out.splitlines()
    assert [line.split(" ")[0] for line in lines] == ["FAILED", "FAILED", "FAILED", "0"]
    assert "expected [1], got [2,18,21]" in lines[0]
    assert conformance(tmp_path, json=True) == 1
    told = json.loads(capsys.readouterr().out)
    assert (told["passed"], told["failed"], len(told["results"])) == (0, 3, 3)
    assert conformance(tmp_path / "absent") == 2
    assert conformance() == 2
    assert "absent cannot be read" in capsys.readouterr().err
