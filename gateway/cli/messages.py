"""`surfacelog messages`, `transcript` and `head`: what a running server says of a session."""

import sys
from typing import Any

import msgspec
from rich.console import Console
from rich.text import Text

from gateway.cli.remote import Remote

__all__ = ["body_text", "head", "messages", "transcript"]

SHOWN_CHARS_MAX = 160
PAGE_EVENTS = 500


def messages(
    session: str,
    /,
    *,
    after: str | None = None,
    min_seq: int = 0,
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
        Print nothing older than this seq.
    wait_ms
        How long to wait for it.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print the answer's JSON.
    """
    query: dict[str, str | int] = {"min_seq": min_seq, "wait_ms": wait_ms}
    if after:
        query["after"] = after
    with Remote(url) as remote:
        body = remote.session("GET", session, "messages", query=query)
    if json:
        return _raw(body)
    found = msgspec.json.decode(body)
    console = Console()
    for message in found["messages"]:
        console.print(line_of(message.get("role", "?"), message.get("content")))
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
    console = Console()
    count, start = 0, 0
    with Remote(url) as remote:
        while True:
            query: dict[str, str | int] = {"from": start, "limit": PAGE_EVENTS}
            page = msgspec.json.decode(remote.session("GET", session, "transcript", query=query), type=_Page)
            for raw in page.events:
                count += 1
                if json:
                    sys.stdout.buffer.write(bytes(raw) + b"\n")
                    continue
                event = msgspec.json.decode(raw)
                console.print(line_of(event["type"].partition("/")[0], event["data"], event["seq"]))
            if page.next is None:
                break
            start = page.next
    if not json:
        console.print(f"{count} events", style="dim")
    return 0


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
    Console().print_json(body.decode())
    return 0


class _Page(msgspec.Struct):
    events: list[msgspec.Raw]
    next: int | None = None


def _raw(body: bytes) -> int:
    sys.stdout.buffer.write(body + b"\n")
    sys.stdout.flush()
    return 0


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
