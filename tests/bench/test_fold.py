"""The figures of `surfacelog bench fold` measure what they say, on a log that is really folded."""

from pathlib import Path

import msgspec

from gateway.cli.bench_fold import WAYS, fold_figures, repeat
from surfacelog.formats.stored import StoredLog
from surfacelog.session import Session

EXAMPLES = Path(__file__).parents[2] / "examples"
MEMORY_BYTES_MAX = 120


def test_a_repeated_log_is_one_session_that_does_everything_again() -> None:
    once = list(StoredLog((EXAMPLES / "compacted.jsonl.zst").read_bytes()))
    expected = msgspec.json.decode((EXAMPLES / "compacted.expect.json").read_bytes())
    session = Session.load(list(repeat(once, 2 * len(once), "v4")))
    assert session.next_seq == 2 * expected["events"]
    assert session.surface.replace_generation == 2 * expected["replaceGeneration"]
    assert len(session.transcript) == 2 * expected["transcript"]
    moved = [seq + expected["events"] for seq in expected["nodes"]]
    assert session.surface.nodes == expected["nodes"] + moved


def test_every_way_is_measured_and_memory_is_kept_small() -> None:
    figures = fold_figures(EXAMPLES / "compacted.jsonl.zst", events=5000, rounds=1)
    assert figures["events"] >= 5000
    assert figures["decode"]["ratio"] == 1.0
    for way in WAYS:
        assert figures[way]["us_per_event"] > 0
    assert 0 < figures["memory"]["bytes_per_event"] <= MEMORY_BYTES_MAX


def test_a_log_of_the_older_format_is_measured_too() -> None:
    assert fold_figures(EXAMPLES / "format0.jsonl.zst", events=300, rounds=1)["events"] >= 300
