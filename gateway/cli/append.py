"""`surfacelog create` and `append`: new sessions and new events, sent to a running server."""

import sys
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from cyclopts import Parameter

from gateway.cli.input_file import read_file
from gateway.cli.remote import Refused, Remote
from producer.ids import mint_id

__all__ = ["append", "create"]


def create(
    session: str | None = None,
    /,
    *,
    title: str | None = None,
    contract: Literal["v4", "v0"] = "v4",
    checks: Literal["surface", "paired"] = "paired",
    url: str | None = None,
    json: bool = False,
) -> int:
    """Make a new session and print its id.

    Parameters
    ----------
    session
        Its id; without one the server makes one up.
    title
        A name for people.
    contract
        Which events it takes: v4, or v0 as older logs hold them.
    checks
        paired also keeps tool calls and their results together.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print the answer's JSON.
    """
    wish: dict[str, Any] = {"contract": contract, "checks": checks}
    wish |= {"id": session} if session is not None else {}
    wish |= {"title": title} if title is not None else {}
    with Remote(url) as remote:
        body = remote.send("POST", "/v1/sessions", body=msgspec.json.encode(wish))
    print(body.decode() if json else msgspec.json.decode(body)["id"])
    return 0


def append(
    session: str,
    type: str | None = None,
    data: Annotated[str | None, Parameter(allow_leading_hyphen=True)] = None,
    /,
    *,
    file: Annotated[Path | None, Parameter(allow_leading_hyphen=True)] = None,
    surface_op: str | None = None,
    sources: list[int] | None = None,
    expected_seq: int | None = None,
    key: str | None = None,
    create: bool = False,
    url: str | None = None,
    json: bool = False,
) -> int:
    """Append one event, or a file of events as one commit.

    Parameters
    ----------
    session
        The session's id.
    type
        The event's type, for example user/message.
    data
        The event's data as JSON; `-` reads it from standard input.
    file
        Instead of type and data: a file with one event a line (`-`: standard input), appended all or none.
    surface_op
        append (the default for message types), or a replace's JSON.
    sources
        sourceEventSeqs of a replace.
    expected_seq
        Append only if this is the next free seq.
    key
        An idempotency key: sending the same again with it appends nothing. By default a new one, which is told
        when the outcome is unknown.
    create
        Make the session first if there is none.
    url
        The server; by default SURFACELOG_URL, else http://127.0.0.1:8750.
    json
        Print the answer's JSON.
    """
    body = _events(type, data, file, surface_op, sources)
    query: dict[str, str | int] = {} if expected_seq is None else {"expectedSeq": expected_seq}
    key = mint_id() if key is None else key
    with Remote(url) as remote:
        if create:
            _make(remote, session)
        try:
            headers = {"Idempotency-Key": key}
            answer = remote.session("POST", session, "events", body=body, query=query, headers=headers)
        except Refused as refusal:
            if refusal.code != "unknown-outcome":
                raise
            message = f"{refusal.message}; the same command with --key {key} appends it once"
            raise Refused(refusal.code, message, refusal.status, refusal.detail) from None
    if json:
        print(answer.decode())
    else:
        told = msgspec.json.decode(answer)
        print(f"seq {told['seq']}" + (f" to {told['nextSeq'] - 1}" if told["count"] > 1 else ""))
    return 0


def _make(remote: Remote, session: str) -> None:
    try:
        remote.send("POST", "/v1/sessions", body=msgspec.json.encode({"id": session}))
    except Refused as refusal:
        if refusal.code != "session-exists":
            raise


def _events(
    type: str | None, data: str | None, file: Path | None, surface_op: str | None, sources: list[int] | None
) -> bytes:
    if file is not None:
        text = sys.stdin.buffer.read() if str(file) == "-" else read_file(file)
        lines = [line for line in text.split(b"\n") if line.strip()]
        return b"[" + b",".join(lines) + b"]"
    if type is None or data is None:
        raise Refused("usage", "give the event's type and data, or --file")
    raw = sys.stdin.buffer.read() if data == "-" else data.encode()
    event: dict[str, Any] = {"type": type, "data": msgspec.Raw(_checked(raw, "the data"))}
    if surface_op is None and (type.endswith("/message") or type == "tool/result"):
        event["surfaceOp"] = "append"
    if surface_op is not None:
        plain = surface_op == "append"
        event["surfaceOp"] = "append" if plain else msgspec.Raw(_checked(surface_op.encode(), "the surface op"))
    if sources:
        event["sourceEventSeqs"] = sources
    return msgspec.json.encode(event)


def _checked(raw: bytes, name: str) -> bytes:
    try:
        msgspec.json.decode(raw, type=msgspec.Raw)
    except msgspec.MsgspecError as error:
        raise Refused("usage", f"{name} is not JSON: {error}") from None
    return raw.strip()
