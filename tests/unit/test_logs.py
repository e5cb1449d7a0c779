"""Log lines carry the fields of their message, in text and as JSON."""

import json
import logging
import sys

from gateway.cli.logs import JsonLines, TextLines


def record_of(message: str, *args: object, error: bool = False, **fields: object) -> logging.LogRecord:
    logger = logging.getLogger("projector.worker")
    info = sys.exc_info() if error else None
    return logger.makeRecord(logger.name, logging.WARNING, "", 1, message, args, info, extra=fields)


def test_a_json_line_holds_the_message_and_its_fields() -> None:
    line = JsonLines().format(record_of("paused for %d ms", 20, partition=3, code="moved"))
    told = json.loads(line)
    assert "\n" not in line
    assert told.pop("time").endswith("Z")
    assert told == {
        "level": "warning",
        "logger": "projector.worker",
        "message": "paused for 20 ms",
        "partition": 3,
        "code": "moved",
    }


def test_a_json_line_stays_one_line_with_a_traceback_and_odd_values() -> None:
    try:
        raise ValueError("a\nb")
    except ValueError:
        line = JsonLines().format(record_of("it failed", error=True, session=b"t/s"))
    assert "\n" not in line
    assert "ValueError" in json.loads(line)["error"]
    assert json.loads(line)["session"] == "b't/s'"


def test_a_text_line_ends_with_the_fields() -> None:
    assert TextLines().format(record_of("paused", partition=3)).endswith("projector.worker paused partition=3")
