"""What the core costs beside the bare decode of the same lines: the figures of `surfacelog bench fold`.

Nothing is written; the log is repeated in memory as one long session. The ways take turns on slices of it, and of
each slice the best round counts, so that a machine that is busy with something else disturbs them alike.
"""

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from gateway.cli.input_file import read_file
from surfacelog.events import Draft, Event, encode_line, event_decoder
from surfacelog.fold import Fold
from surfacelog.formats.stored import StoredLog
from surfacelog.header import Header
from surfacelog.lossless import read
from surfacelog.session import Session

__all__ = ["fold_figures"]

SLICE_EVENTS = 2500
WAYS = ("decode", "fold", "load", "append")


def fold_figures(path: Path, events: int = 200_000, rounds: int = 3) -> dict[str, Any]:
    """CPU time in µs per event, and ratios to the bare decode (1 is as fast, 0.5 takes twice as long). `memory`:
    peak bytes per event of a loaded session beside the bytes of its lines. Raises LedgerError for damage."""
    log = StoredLog(read_file(path))
    once = list(log)
    header = Header(id="bench", created_at=0, contract="v4" if log.contract == "v4" else "v0")
    lines = list(repeat(once, events, log.contract))
    slices = [lines[start : start + SLICE_EVENTS] for start in range(0, len(lines), SLICE_EVENTS)]
    best = [[float("inf")] * len(slices) for _ in WAYS]
    for _ in range(rounds):
        _round(slices, header, best)
    figures: dict[str, Any] = {"events": len(lines), "bytes": sum(map(len, lines))}
    for way, seconds in zip(WAYS, map(sum, best), strict=True):
        figures[way] = {
            "us_per_event": round(seconds / len(lines) * 1e6, 3),
            "ratio": round(sum(best[0]) / seconds, 3),
        }
    figures["memory"] = {"bytes_per_event": round(_memory(lines, header) / len(lines), 1)}
    return figures


def _round(slices: list[list[bytes]], header: Header, best: list[list[float]]) -> None:
    """One pass of every way over the log; keeps the smaller of the seconds in `best[way][slice]`."""
    fold, loaded, appended = Fold(header.contract), Session(header), Session(header)
    for place, lines in enumerate(slices):
        offers = [_offer(event_decoder.decode(line)) for line in lines]
        took = (
            _seconds(_decode_all, lines),
            _seconds(fold.extend, lines),
            _seconds(loaded.extend, lines),
            _seconds(_append_all, appended, offers),
        )
        for way, seconds in enumerate(took):
            best[way][place] = min(best[way][place], seconds)


def repeat(once: list[Event], count: int, contract: str) -> Iterator[bytes]:
    """At least `count` lines: the events again and again, every seq in them moved to its repetition."""
    done = 0
    while done < count:
        for event in once:
            yield encode_line(_moved(event, done), done + event.seq, event.time)
        done += len(once)


def _moved(event: Event, by: int) -> Draft:
    op, sources, data = event.surface_op, event.source_event_seqs, event.data
    if by and op is not UNSET and bytes(op) != b'"append"':
        range_ = read(bytes(op))
        op = Raw(msgspec.json.encode({k: v + by if type(v) is int else v for k, v in range_.items()}))
    if by and sources is not UNSET:
        sources = Raw(msgspec.json.encode([seq + by for seq in read(bytes(sources))]))
    if by and event.type == "image/offload":
        targets = read(bytes(data))["targets"]
        data = Raw(msgspec.json.encode({"targets": [{**one, "seq": one["seq"] + by} for one in targets]}))
    if by and event.type == "developer/message" and b'"headerSeq"' in bytes(data):
        value = read(bytes(data))
        data = Raw(msgspec.json.encode({**value, "headerSeq": value["headerSeq"] + by}))
    return Draft(event.type, data, event.time, event.ignorable, op, sources)


def _offer(event: Event) -> Draft:
    data, op, sources = Raw(bytes(event.data)), event.surface_op, event.source_event_seqs
    return Draft(
        event.type,
        data,
        event.time,
        event.ignorable,
        op if op is UNSET else Raw(bytes(op)),
        sources if sources is UNSET else Raw(bytes(sources)),
    )


def _decode_all(lines: list[bytes]) -> None:
    decode = event_decoder.decode
    for line in lines:
        decode(line)


def _append_all(session: Session, offers: list[Draft]) -> None:
    for offer in offers:
        session.append_draft(offer)


def _seconds(run: Callable[..., object], *arguments: object) -> float:
    started = time.process_time()
    run(*arguments)
    return time.process_time() - started


def _memory(lines: list[bytes], header: Header) -> int:
    """Peak bytes of a session loaded from lines that nobody else holds, less the bytes of the lines."""
    gc.collect()
    tracemalloc.start()
    session = Session.load((bytes(bytearray(line)) for line in lines), header)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    del session
    return peak - sum(map(len, lines))
