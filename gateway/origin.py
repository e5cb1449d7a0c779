"""Keeps web pages away from a server that asks for no credential.

Such a server listens on loopback only, and a browser on the same machine reaches it too: a page of anybody's could
write with a form, and read after pointing its own name at 127.0.0.1. Programs send no Origin, and the right Host.
"""

from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import urlsplit

from gateway.auth import is_loopback
from gateway.status import refuse

__all__ = ["LocalOnly", "is_local_host"]

Application = Callable[[Any, Any, Any], Awaitable[None]]


class LocalOnly:
    """ASGI middleware: refuses requests of pages that are not served from this machine."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] == "http" and not all(_is_local(name, value) for name, value in scope["headers"]):
            refusal = refuse(
                "cross-origin", "without credentials this server serves programs on its own machine only"
            )
            headers = [(b"content-type", b"application/json"), (b"content-length", b"%d" % len(refusal.body))]
            # What is left of the body is not worth reading.
            headers.append((b"connection", b"close"))
            await send({"type": "http.response.start", "status": refusal.status, "headers": headers})
            await send({"type": "http.response.body", "body": refusal.body})
            return
        await self._app(scope, receive, send)


def _is_local(name: bytes, value: bytes) -> bool:
    text = value.decode("latin-1")
    if name == b"host":
        return is_local_host(text)
    if name == b"origin":
        # A name without a dot is no stranger's, but its pages are another machine's.
        return _is_this_machine(_authority(text))
    return True


def _authority(origin: str) -> str:
    try:
        return urlsplit(origin).netloc or "."
    except ValueError:
        return "."


def is_local_host(authority: str) -> bool:
    """Whether `host` or `host:port` is a name that no stranger can point at this machine: an address of loopback,
    `localhost`, or a name without a dot."""
    plain = authority[:1] not in (".", "[") and "." not in _host(authority)
    return plain or _is_this_machine(authority)


def _is_this_machine(authority: str) -> bool:
    if authority.startswith("["):
        return is_loopback(authority.partition("]")[0] + "]")
    host = _host(authority)
    return is_loopback(host) or (host.endswith(".localhost") and authority[:1] != ".")


def _host(authority: str) -> str:
    return authority.partition(":")[0].rstrip(".").lower()
