"""The live tail of a session."""

from collections.abc import AsyncIterator

from litestar import get
from litestar.params import FromPath
from litestar.response import Stream

from gateway.routes import Asked, asked, flag, number
from gateway.stream import Seen
from surfacelog.errors import ProtocolError

__all__ = ["STREAM_ROUTES"]


SEQ_DIGITS_MAX = 16
EPOCH_CHARS_MAX = 128


@get("/v1/sessions/{session:str}/stream")
async def stream(request: Asked, session: FromPath[str]) -> Stream:
    """Server-sent events from seq `from` on (by default only what is new); `Last-Event-ID` goes on behind it."""
    services, tenant, name = asked(request, session)
    first = number(request, "from", -1)
    told: AsyncIterator[bytes] = await services.streams.start(
        tenant, name, None if first < 0 else first, _seen(request), epochs=flag(request, "epochs")
    )
    return Stream(
        told, media_type="text/event-stream", headers={"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
    )


def _seen(request: Asked) -> Seen | None:
    last = request.headers.get("last-event-id")
    if not last:
        return None
    epoch, colon, seq = last.rpartition(":")
    if not (seq.isascii() and seq.isdigit() and len(seq) <= SEQ_DIGITS_MAX and len(epoch) <= EPOCH_CHARS_MAX):
        raise ProtocolError("bad-request", "Last-Event-ID is the id of the last event that was read")
    # An empty epoch before the colon is one that no session has.
    return Seen(int(seq), epoch if epoch or not colon else colon)


STREAM_ROUTES = [stream]
