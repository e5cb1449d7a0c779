"""`surfacelog inspect`: folds a stored log offline and says what the model sees and what the tail needs."""

import sys
from collections.abc import Sequence
from json import dumps
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET

from gateway.cli.input_file import read_file
from surfacelog import lossless
from surfacelog.errors import LedgerError
from surfacelog.events import Event, read_data
from surfacelog.fold import Fold, fold
from surfacelog.formats import OUTPUT_BYTES_MAX, StoredLog, line_of
from surfacelog.header import read_header
from surfacelog.inbox import inbox
from surfacelog.lifecycle import report
from surfacelog.repair import repair
from surfacelog.session import Session

__all__ = ["inspect", "inspect_log"]

# How many events the end of an unpacked log is shown with.
TAIL_EVENTS = 8
EXCERPT_CHARS = 72

Json = dict[str, Any]


def inspect(
    log: Path,
    /,
    *,
    recover: bool = False,
    vocabulary: list[str] | None = None,
    max_bytes: int = OUTPUT_BYTES_MAX,
    json: bool = False,
) -> int:
    """Fold a stored log (.jsonl, plain or in zstd frames) without a server: surface, messages, closers.

    Exits with 1 when the log is refused, 2 when the file cannot be read.

    Parameters
    ----------
    log
        The log's file. It is only read.
    recover
        Leave out good rows behind a damaged one too, as long as no turn ends among them.
    vocabulary
        A log-only type of the log's own, known like the others; may be given several times.
    max_bytes
        How many bytes the log may have, and inflate to.
    json
        Print everything as one JSON object.
    """
    try:
        data = read_file(log, max_bytes)
        told = inspect_log(data, recover=recover, vocabulary=vocabulary or (), output_bytes_max=max_bytes)
    except OSError as error:
        print(f"surfacelog: {log} cannot be read: {error.strerror}", file=sys.stderr)
        return 2
    except LedgerError as error:
        if json:
            print(
                msgspec.json.encode(
                    {"code": error.code, "message": error.message, "detail": error.detail}
                ).decode()
            )
        print(f"surfacelog: {log}: {error}", file=sys.stderr)
        return 1
    if json:
        print(_encode(told))
    else:
        _print(log.name, told)
    return 0


def inspect_log(
    data: bytes,
    *,
    recover: bool = False,
    vocabulary: Sequence[str] = (),
    output_bytes_max: int = OUTPUT_BYTES_MAX,
) -> Json:
    """What a stored log comes to, ready for JSON. `vocabulary`: more log-only types that it may hold. Raises
    LedgerError, with the row where there is one.

    Names as in the expectations of the example logs; besides them `contract`, `replacements` (their number),
    `notices`, `lifecycle` (what does not nest), `pendingInbox` and `excerpts` (a line of each message).
    """
    log = StoredLog(data, recover=recover, output_bytes_max=output_bytes_max)
    assert log.header is not None
    header = log.header
    if vocabulary:
        # Read again, since not every vocabulary is one.
        header = read_header(msgspec.structs.replace(header, vocabulary=tuple(vocabulary)).encode())
    events: list[Event] = []

    def lines() -> Any:
        for event in log:
            events.append(event)
            yield line_of(event)

    session = Session.load(lines(), header)
    folded = fold(session.lines, log.contract)
    _check(session, folded)
    queued = inbox(events)
    told: Json = {
        "events": session.next_seq,
        "rows": log.rows,
        "header": {"id": log.header.id, "version": log.header.version},
        "contract": log.contract,
        "nodes": session.surface.nodes,
        "replaceGeneration": session.surface.replace_generation,
        "contentGeneration": session.surface.content_generation,
        "messages": [message.seq for message in session.messages],
        "transcript": len(session.transcript),
        "replacements": len(folded.replacements),
        "closers": [_written(closer) for closer in repair(events, log.contract)],
        "notices": [notice.text for notice in log.notices],
        "lifecycle": [{"seq": finding.seq, "text": finding.text} for finding in report(events)],
        "pendingInbox": [item.id for item in queued.pending],
        "inboxFaults": [{"seq": fault.seq, "text": fault.text} for fault in queued.faults],
        "excerpts": [_excerpt(message.json) for message in session.messages],
    }
    if log.packed is not None:
        first, count = log.packed
        # With the event behind the run, so that the seam shows too.
        told["packed"] = [_written(event) for event in events[first : first + count + 1]]
        told["unpackedTail"] = [
            {"type": event.type, "seq": event.seq, "time": event.time} for event in events[-TAIL_EVENTS:]
        ]
    return told


def _check(session: Session, folded: Fold) -> None:
    """Validated session and full fold are two ways to one answer."""
    assert folded.nodes == session.surface.nodes
    assert folded.messages() == [(message.seq, message.json) for message in session.messages]


def _written(event: Event) -> Json:
    written: Json = {
        "type": event.type,
        "seq": event.seq,
        "time": event.time,
        "data": read_data(event.data),
    }
    if event.surface_op is not UNSET:
        written["surfaceOp"] = read_data(event.surface_op)
    if event.source_event_seqs is not UNSET:
        written["sourceEventSeqs"] = read_data(event.source_event_seqs)
    return written


def _excerpt(message: bytes) -> Json:
    value = lossless.read(message)
    content = value.get("content") if isinstance(value, dict) else None
    blocks = content if isinstance(content, list) else []
    texts = []
    for block in blocks:
        if isinstance(block, dict):
            text = block.get("text") or block.get("name")
            texts.append(text if isinstance(text, str) else f"({block.get('type')})")
    line = " ".join(" ".join(texts).split())
    shown = "".join(char if char.isprintable() else "·" for char in line[:EXCERPT_CHARS])
    return {"role": value.get("role") if isinstance(value, dict) else None, "text": shown}


def _outcome(data: Json) -> str:
    """Of a result, its call and code; of an end, its reason."""
    if "message" in data:
        return f"{data['message']['source']['callId']} {data['error']['code']}"
    return str(data.get("reason", {}).get("kind", ""))


def _encode(told: Json) -> str:
    shown = {name: value for name, value in told.items() if name != "excerpts"}
    try:
        return msgspec.json.encode(shown).decode()
    except UnicodeEncodeError:
        # Only this encoder writes a lone surrogate, as an escape.
        return dumps(shown)


def _print(name: str, told: Json) -> None:
    header = told["header"]
    print(f"{name}: {header['id']}, format {header['version']}, contract {told['contract']}")
    rows = "" if told["rows"] == told["events"] else f" in {told['rows']} rows"
    print(f"  events        {told['events']}{rows}")
    print(f"  surface       {len(told['nodes'])} nodes: {' '.join(map(str, told['nodes']))}")
    print(f"  transcript    {told['transcript']} events, as a person saw them")
    print(f"  generation    replaces {told['replaceGeneration']}, content {told['contentGeneration']}")
    print(f"  replacements  {told['replacements']}")
    print(f"  messages      {len(told['messages'])}, as the model sees them:")
    for seq, excerpt in zip(told["messages"], told["excerpts"], strict=True):
        print(f"    {seq:>8}  {excerpt['role'] or '?':<10} {excerpt['text']}")
    closers = told["closers"]
    print(f"  closers       {'the tail needs' if closers else 'the tail needs none'}{':' if closers else ''}")
    for closer in closers:
        print(f"    {closer['seq']:>8}  {closer['type']} {_outcome(closer['data'])}".rstrip())
    if told["pendingInbox"]:
        print(f"  inbox         waiting: {' '.join(told['pendingInbox'])}")
    for finding in (*told["lifecycle"], *told["inboxFaults"]):
        print(f"  out of place  {finding['seq']}: {finding['text']}")
    for notice in told["notices"]:
        print(f"  note          {notice}")
