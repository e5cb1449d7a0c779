"""`surfacelog export`: a session as a stored log, a header row and one event a line, which `import` reads."""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from gateway.cli.remote import Refused, Remote
from surfacelog.formats.headers import CONTRACTS, DECIDED

__all__ = ["export_log"]

VERSIONS = {contract: version for version, contract in CONTRACTS.items()}


def export_log(session: str, file: Path | None = None, /, *, url: str | None = None) -> int:
    """Write a session as a stored log (.jsonl), byte for byte as the ledger keeps it.

    Parameters
    ----------
    session
        The session's id.
    file
        Where to write; by default standard output.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    """
    with Remote(url) as remote:
        header = msgspec.json.decode(remote.session("GET", session), type=_Whole).header
        if file is None:
            count = _write(sys.stdout.buffer, remote, session, header)
        else:
            try:
                with file.open("xb") as target:
                    count = _write(target, remote, session, header)
            except OSError as error:
                raise Refused("usage", f"{file} cannot be written: {error.strerror}") from None
            print(f"{file}: {count} events")
    if known := header.get("vocabulary"):
        options = " ".join(f"--vocabulary {kind}" for kind in known)
        print(f"note: a stored log cannot say which types are its own; import it with {options}", file=sys.stderr)
    return 0


class _Whole(msgspec.Struct):
    header: dict[str, Any]


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    next: int | None = None


def _write(target: BinaryIO, remote: Remote, session: str, header: dict[str, Any]) -> int:
    # What decides the rules is told by the format's version, not by fields of the row.
    kept = {name: value for name, value in header.items() if name not in DECIDED}
    row = {"type": "session", **kept, "version": VERSIONS[header.get("contract", "v4")]}
    target.write(msgspec.json.encode(row) + b"\n")
    count = 0
    for line in _lines(remote, session):
        target.write(line + b"\n")
        count += 1
    target.flush()
    return count


def _lines(remote: Remote, session: str) -> Iterator[bytes]:
    start: int | None = 0
    while start is not None:
        body = remote.session("GET", session, "events", query={"from": start})
        page = msgspec.json.decode(body, type=_Page)
        yield from (bytes(raw) for raw in page.events)
        start = page.next
