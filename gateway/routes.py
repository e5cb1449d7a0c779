"""What every route needs: who asks, what was asked for, and how an answer or a refusal is written."""

import logging
from collections.abc import Mapping
from typing import Any

from litestar import MediaType, Request, Response
from litestar.datastructures import State
from litestar.exceptions import (
    HTTPException,
    InternalServerException,
    MethodNotAllowedException,
    NotFoundException,
)

from gateway.bodies import read_body
from gateway.paths import session_id
from gateway.services import Services
from gateway.status import Refusal, refusal_of, refuse
from producer.cache import CacheUnavailable
from producer.log import ProduceUnknown, Unavailable
from surfacelog.errors import LedgerError, ProtocolError

__all__ = [
    "EXCEPTION_HANDLERS",
    "SMALL_BODY_BYTES",
    "Asked",
    "answer",
    "asked",
    "body_of",
    "flag",
    "number",
    "only",
    "services_of",
]

# Of a request that carries no events.
SMALL_BODY_BYTES = 65_536

Asked = Request[Any, Any, State]
_log = logging.getLogger("surfacelog.gateway")
_FLAGS = {"1": True, "true": True, "0": False, "false": False}


def services_of(request: Asked) -> Services:
    """The gateway's services."""
    found = request.app.state.services
    assert isinstance(found, Services)
    return found


def asked(request: Asked, session: str) -> tuple[Services, str, str]:
    """(services, tenant, session id) of a request for a session; raises `unauthorized` or `malformed`."""
    services = services_of(request)
    tenant = services.doorkeeper.tenant_of(only(request, "authorization"))
    return services, tenant, session_id(session)


async def body_of(request: Asked, bytes_max: int) -> bytes:
    """The whole body; raises `too-large`, or `bad-request` when it does not come or its sender went away."""
    try:
        return await read_body(request.stream(), request.headers.get("content-length"), bytes_max)
    except InternalServerException:
        raise ProtocolError("bad-request", "the connection ended before the body did") from None


def only(request: Asked, header: str) -> str | None:
    """A header that decides something, so it may stand there once only; raises `bad-request`."""
    found = request.headers.getall(header, [])
    if len(found) > 1:
        raise ProtocolError("bad-request", f"the header {header} stands there more than once")
    return found[0] if found else None


def number(request: Asked, name: str, default: int, low: int = 0, high: int = 2**53) -> int:
    """A whole number of the query; raises `bad-request`."""
    text = _of_query(request, name)
    if text is None:
        return default
    # int() would take signs, spaces, underscores and other alphabets' digits.
    found = int(text) if text.isascii() and text.isdigit() and len(text) <= 16 else low - 1
    if not low <= found <= high:
        raise ProtocolError("bad-request", f"{name} is a whole number from {low} to {high}")
    return found


def flag(request: Asked, name: str) -> bool:
    """A yes or no of the query, no by default; raises `bad-request`."""
    text = _of_query(request, name)
    if text is not None and text not in _FLAGS:
        raise ProtocolError("bad-request", f"{name} is true or false")
    return _FLAGS[text] if text is not None else False


def _of_query(request: Asked, name: str) -> str | None:
    found: list[str] = request.query_params.getall(name, [])
    if len(found) > 1:
        raise ProtocolError("bad-request", f"{name} stands in the query more than once")
    return found[0] if found else None


def answer(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    """A JSON answer whose bytes are ready."""
    return Response(body, status_code=status, media_type=MediaType.JSON, headers=dict(headers or {}))


def _told(request: Asked, refusal: Refusal, headers: Mapping[str, str] | None = None) -> Response[bytes]:
    services_of(request).metrics.refusals.labels(refusal.code).inc()
    found = dict(headers or {})
    if refusal.retry_after_s:
        found["Retry-After"] = str(refusal.retry_after_s)
    if refusal.status == 401:
        found["WWW-Authenticate"] = "Bearer"
    if refusal.status == 413:
        # Else the server would read the rest of the body, however long it is, to keep the connection.
        found["Connection"] = "close"
    return answer(refusal.body, refusal.status, found)


def _on_ledger_error(request: Asked, error: LedgerError) -> Response[bytes]:
    return _told(request, refusal_of(error))


def _on_unavailable(request: Asked, error: Exception) -> Response[bytes]:
    _log.warning("a server does not answer: %s", error)
    return _told(request, refuse("unavailable", "the ledger cannot reach its log or its cache; try again"))


def _on_unknown(request: Asked, error: Exception) -> Response[bytes]:
    _log.warning("outcome of a write unknown: %s", error)
    return _told(
        request, refuse("unknown-outcome", "the write may or may not have happened; repeat it with the same key")
    )


def _on_http(request: Asked, error: HTTPException) -> Response[bytes]:
    if isinstance(error, NotFoundException):
        return _told(request, refuse("no-route", "nothing is served at this path; see docs/http.md"))
    if isinstance(error, MethodNotAllowedException):
        allowed = {name: value for name, value in (error.headers or {}).items() if name.lower() == "allow"}
        return _told(request, refuse("method-not-allowed", "this path does not take this method"), allowed)
    if error.status_code < 500:
        return _told(request, refuse("bad-request", "the request cannot be read; see docs/http.md"))
    return _on_fault(request, error)


def _on_fault(request: Asked, error: Exception) -> Response[bytes]:
    _log.error("unexpected fault", exc_info=error)
    return _told(request, refuse("internal", "an unexpected fault; it was logged on the server"))


EXCEPTION_HANDLERS: dict[int | type[Exception], Any] = {
    LedgerError: _on_ledger_error,
    CacheUnavailable: _on_unavailable,
    Unavailable: _on_unavailable,
    ProduceUnknown: _on_unknown,
    HTTPException: _on_http,
    Exception: _on_fault,
}
