"""The command `surfacelog-sim`: exit codes, a readable trace, and the figures of a run as JSON."""

import msgspec
import pytest

from sim.command import simulate_seeds


def test_kept_promises_are_a_success(capsys: pytest.CaptureFixture[str]):
    assert simulate_seeds(seeds=3, first=2) == 0
    told = capsys.readouterr().out
    assert "3 runs from seed 2" in told
    assert "every promise was kept" in told


def test_a_broken_promise_shows_its_run(capsys: pytest.CaptureFixture[str]):
    assert simulate_seeds(seeds=200, switch_off="verdict") == 1
    told = capsys.readouterr().out
    assert "client0 asks" in told
    assert "offset   0: open" in told
    assert "surfacelog-sim --first" in told


def test_the_report_is_one_json_object(capsys: pytest.CaptureFixture[str]):
    assert simulate_seeds(seeds=2, json=True) == 0
    report = msgspec.json.decode(capsys.readouterr().out)
    assert report["seeds"] == 2
    assert report["failed"] is None
    assert report["findings"] == []


def test_an_unknown_rule_is_named(capsys: pytest.CaptureFixture[str]):
    assert simulate_seeds(seeds=1, switch_off="luck") == 2
    assert "drop-on-reassignment" in capsys.readouterr().err
