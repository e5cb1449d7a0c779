"""`surfacelog import`: puts a stored log into a running server, each event with its own seq, time and data."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from gateway.cli.input_file import read_file
from gateway.cli.outlet import Screen
from gateway.cli.remote import Refused, Remote
from surfacelog.events import Draft, Event
from surfacelog.formats.stored import StoredLog
from surfacelog.header import Header

__all__ = ["import_log"]

# Small enough for any broker's message limit together with headers, large enough to make round trips few.
BATCH_BYTES = 256 * 1024
BATCH_EVENTS = 500


def import_log(
    log: Path,
    /,
    *,
    session: str | None = None,
    batch: int = BATCH_EVENTS,
    vocabulary: list[str] | None = None,
    url: str | None = None,
    json: bool = False,
) -> int:
    """Put a stored session log (.jsonl, plain or in zstd frames) into a running server.

    An import that was broken off goes on where it stopped when it is run again.

    Parameters
    ----------
    log
        The log's file.
    session
        The new session's id; by default the log's own.
    batch
        How many events one append holds.
    vocabulary
        A log-only type of the log's own that the new session knows; may be given several times.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print the outcome as JSON.
    """
    try:
        data = read_file(log)
    except OSError as error:
        raise Refused("usage", f"{log} cannot be read: {error.strerror}") from None
    stored = StoredLog(data)
    assert stored.header is not None
    name = session if session is not None else stored.header.id
    with Remote(url) as remote:
        done = _open(remote, name, stored.header, vocabulary or [])
        appended = _copy(remote, name, stored, done, max(1, batch), shown=not json and sys.stderr.isatty())
    told = {"session": name, "events": stored.next_seq, "appended": appended, "skipped": done}
    notices = [notice.text for notice in stored.notices]
    if json:
        print(msgspec.json.encode(told | {"notices": notices}).decode())
        return 0
    for notice in notices:
        print(f"note: {notice}", file=sys.stderr)
    print(f"{name}: {appended} events imported" + (f", {done} were there already" if done else ""))
    return 0


def _open(remote: Remote, name: str, header: Header, vocabulary: list[str]) -> int:
    """Makes the session, or finds how far an earlier import came; the next seq."""
    wish: dict[str, Any] = msgspec.to_builtins(header)
    for decided in ("version", "rules", "inheritedEventCount"):
        wish.pop(decided, None)
    wish |= {"id": name, "contract": header.contract, "checks": "surface", "vocabulary": vocabulary}
    try:
        remote.send("POST", "/v1/sessions", body=msgspec.json.encode(wish))
    except Refused as refusal:
        if refusal.code != "session-exists":
            raise
        found = msgspec.json.decode(remote.session("GET", name), type=dict[str, Any])
        if found["header"].get("contract") != header.contract:
            raise Refused("session-exists", "another session has this id; give --session") from None
        return int(found["seq"])
    return 0


def _copy(remote: Remote, name: str, stored: StoredLog, done: int, batch: int, *, shown: bool) -> int:
    appended = 0
    columns = (TextColumn("importing"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Screen(stderr=True), disable=not shown) as progress:
        # The total is known only once the whole log was read.
        task = progress.add_task("import", total=None)
        for events in _batches(stored, batch):
            events = _unknown(remote, name, events, done)
            if events:
                first = events[0].seq
                body = b"[" + b",".join(map(_draft, events)) + b"]"
                remote.session("POST", name, "events", body=body, query={"expectedSeq": first})
                appended += len(events)
                progress.update(task, completed=events[-1].seq + 1)
        progress.update(task, total=stored.next_seq)
    if stored.next_seq < done:
        raise Refused("session-exists", "the session holds more events than the log; give --session")
    return appended


def _unknown(remote: Remote, name: str, events: list[Event], done: int) -> list[Event]:
    """The events that the session does not hold yet; the last that it holds must be the log's."""
    if events[0].seq < done <= events[-1].seq + 1:
        last = events[done - 1 - events[0].seq]
        page = remote.session("GET", name, "events", query={"from": done - 1, "to": done})
        there = msgspec.json.decode(page, type=_Page).events
        if not there or bytes(there[0].data) != bytes(last.data) or there[0].type != last.type:
            raise Refused("session-exists", "another session has this id; give --session")
    return [event for event in events if event.seq >= done]


class _Page(msgspec.Struct):
    events: list[Event]


def _batches(stored: StoredLog, events_max: int) -> Iterator[list[Event]]:
    batch: list[Event] = []
    size = 0
    for event in stored:
        weight = len(bytes(event.data)) + 200
        if batch and (len(batch) >= events_max or size + weight > BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(event)
        size += weight
    if batch:
        yield batch


def _draft(event: Event) -> bytes:
    return msgspec.json.encode(
        Draft(event.type, event.data, event.time, event.ignorable, event.surface_op, event.source_event_seqs)
    )
