"""Session ids in paths, exactly as they were sent.

An id may hold any character, slashes and dots too, so a path is split before it is decoded, and what the router
sees is the id's bytes in hex. Nothing is normalised: two ids that differ in a byte are two sessions.
"""

import re
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import quote, unquote_to_bytes

from surfacelog.errors import ProtocolError

__all__ = ["ExactPaths", "session_id", "session_path"]

_PREFIX = (b"", b"v1", b"sessions")
_BROKEN_ESCAPE = re.compile(rb"%(?![0-9A-Fa-f]{2})")
# A path that no route has: the router says 404, in the shape of every refusal.
NOWHERE = "/-"
# ASGI, spelt without a framework: clients use this module too.
Application = Callable[[Any, Any, Any], Awaitable[None]]


class ExactPaths:
    """ASGI middleware around the router: decides on `raw_path` which part of the path is a session's id."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http":
            raw = scope.get("raw_path") or quote(scope["path"]).encode()
            scope["path"] = routed_path(raw.partition(b"?")[0])
        await self._app(scope, receive, send)


def routed_path(raw: bytes) -> str:
    """The path that the router sees."""
    parts = raw.split(b"/")
    if parts == [b"", b""]:
        return "/"
    if not all(parts[1:]):
        return NOWHERE
    if tuple(parts[:3]) == _PREFIX and len(parts) > 3:
        if _BROKEN_ESCAPE.search(parts[3]):
            parts[3] = b"-"  # not hex: no id can be spelled so
        else:
            parts[3] = unquote_to_bytes(parts[3]).hex().encode()
    return b"/".join(parts).decode("latin-1")


def session_id(routed: str) -> str:
    """The id behind a routed path's part; raises `malformed` when it is not Unicode."""
    try:
        return bytes.fromhex(routed).decode()
    except ValueError:
        raise ProtocolError("malformed", "a session id is percent-encoded UTF-8; encode it again") from None


def session_path(session: str, rest: str = "") -> str:
    """The path of a session (and of what lies under it), for clients. A lone dot is encoded too, so that no client
    on the way takes it for a directory."""
    encoded = quote(session, safe="")
    if set(encoded) == {"."}:
        encoded = encoded.replace(".", "%2E")
    return f"/v1/sessions/{encoded}" + (f"/{rest}" if rest else "")
