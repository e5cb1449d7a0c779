"""`surfacelog messages`, `transcript` and `head`: what a running server says of a session."""

import sys
from collections.abc import Iterator
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from gateway.cli.outlet import Screen
from gateway.cli.remote import Remote
from surfacelog.events import event_decoder

__all__ = ["body_text", "head", "line_of", "messages", "transcript", "transcript_lines"]

SHOWN_CHARS_MAX = 160
PAGE_EVENTS = 500


def messages(
    session: str,
    /,
    *,
    after: str | None = None,
    min_seq: int | None = None,
    wait_ms: int = 0,
    url: str | None = None,
    json: bool = False,
) -> int:
    """Print what the model should see next.

    Parameters
    ----------
    session
        The session's id.
    after
        A token from an earlier answer: print only what is new since.
    min_seq
        The highest seq you have seen: print nothing that lacks this event.
    wait_ms
        How long to wait for it, in ms.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print the answer's JSON.
    """
    query: dict[str, str | int] = {"wait_ms": wait_ms}
    if min_seq is not None:
        query["min_seq"] = min_seq
    if after:
        query["after"] = after
    with Remote(url) as remote:
        body = remote.session("GET", session, "messages", query=query)
    if json:
        return _raw(body)
    found = msgspec.json.decode(body)
    console = Screen()
    for message in found["messages"]:
        show(console, line_of(message.get("role", "?"), message.get("content")))
    console.print(
        f"{len(found['messages'])} messages · seq {found['seq']} · generation {found['generation']}", style="dim"
    )
    return 0


def transcript(session: str, /, *, url: str | None = None, json: bool = False) -> int:
    """Print what a person saw: every message in the order it came, compactions left out.

    Parameters
    ----------
    session
        The session's id.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print one event a line, as JSON.
    """
    console = Screen()
    count = 0
    with Remote(url) as remote:
        for raw in transcript_lines(remote, session):
            count += 1
            if json:
                sys.stdout.buffer.write(raw + b"\n")
                continue
            event = event_decoder.decode(raw)
            show(console, line_of(event.type.partition("/")[0], msgspec.json.decode(event.data), event.seq))
    if not json:
        console.print(f"{count} events", style="dim")
    return 0


def transcript_lines(remote: Remote, session: str) -> Iterator[bytes]:
    """The whole transcript, page by page."""
    start: int | None = 0
    while start is not None:
        query: dict[str, str | int] = {"from": start, "limit": PAGE_EVENTS}
        page = msgspec.json.decode(remote.session("GET", session, "transcript", query=query), type=_Page)
        yield from (bytes(raw) for raw in page.events)
        start = page.next


def head(session: str, /, *, url: str | None = None, json: bool = False) -> int:
    """Print a session's header and where it stands.

    Parameters
    ----------
    session
        The session's id.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print the answer's JSON.
    """
    with Remote(url) as remote:
        body = remote.session("GET", session)
    if json:
        return _raw(body)
    Screen().print_json(body.decode())
    return 0


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    next: int | None = None


def _raw(body: bytes) -> int:
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.flush()
    return 0


def show(console: Console, line: Text) -> None:
    """One line stays one line, whatever the terminal's width."""
    console.print(line, no_wrap=True, overflow="ellipsis", crop=True)


def line_of(role: str, content: Any, seq: int | None = None) -> Text:
    """One line for one message: its role and the start of its text."""
    line = Text(f"{seq:>6}  " if seq is not None else "", style="dim")
    line.append(f"{role:<10}", style="bold")
    line.append(body_text(content)[:SHOWN_CHARS_MAX])
    return line


def body_text(content: Any) -> str:
    """The readable text in a message's content, on one line; other blocks by their type in brackets."""
    if isinstance(content, dict):
        content = content.get("message", content)
        content = content.get("content", "") if isinstance(content, dict) else content
    if isinstance(content, str):
        return " ".join(content.split())
    if not isinstance(content, list):
        return ""
    parts = [
        block["text"] if isinstance(block.get("text"), str) else f"[{block.get('name') or block.get('type', '?')}]"
        for block in content
        if isinstance(block, dict)
    ]
    return " ".join(" ".join(parts).split())
