"""The live tail of a session."""

from collections.abc import AsyncIterator

from litestar import get
from litestar.params import FromPath
from litestar.response import Stream

from gateway.routes import Asked, asked, number
from surfacelog.errors import ProtocolError

__all__ = ["STREAM_ROUTES"]


@get("/v1/sessions/{session:str}/stream")
async def stream(request: Asked, session: FromPath[str]) -> Stream:
    """Server-sent events from seq `from` on (by default only what is new); `Last-Event-ID` goes on behind it."""
    services, tenant, name = asked(request, session)
    told: AsyncIterator[bytes] = await services.streams.start(tenant, name, _first(request))
    return Stream(
        told, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )


def _first(request: Asked) -> int | None:
    last = request.headers.get("last-event-id")
    if last is not None:
        if not (last.isascii() and last.isdigit() and len(last) <= 16):
            raise ProtocolError("bad-request", "Last-Event-ID is the seq of the last event that was read")
        return int(last) + 1
    found = number(request, "from", -1)
    return None if found < 0 else found


STREAM_ROUTES = [stream]
