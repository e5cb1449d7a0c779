"""GET routes of a session. Every answer states `seq` (the next event's) and `generation`."""

from litestar import Response, get
from litestar.params import FromPath

from gateway.reads import WAIT_MS, Answer
from gateway.routes import Asked, answer, asked, number

__all__ = ["READ_ROUTES"]

ROOT = "/v1/sessions/{session:str}"


def _wish(request: Asked, wait_ms_max: int) -> tuple[int, int]:
    """(min_seq, wait_ms): the event that the answer must hold, -1 for none, and how long to wait for it."""
    return number(request, "min_seq", -1), number(request, "wait_ms", min(WAIT_MS, wait_ms_max), 0, wait_ms_max)


def _stated(found: Answer, etag: bool = False) -> Response[bytes]:
    headers = {"Surfacelog-Seq": str(found.seq), "Surfacelog-Generation": str(found.generation)}
    if etag:
        headers["ETag"] = f'"{found.token}"'
        headers["Cache-Control"] = "private, no-cache"
    return answer(found.body, 304 if found.unchanged else 200, headers)


@get(f"{ROOT}/messages")
async def messages(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """What the model should see next."""
    services, tenant, name = asked(request, session)
    min_seq, wait_ms = _wish(request, services.settings.wait_ms_max)
    found = await services.reads.messages(
        tenant,
        name,
        after=request.query_params.get("after"),
        known=request.headers.get("if-none-match"),
        min_seq=min_seq,
        wait_ms=wait_ms,
    )
    return _stated(found, etag=True)


@get(ROOT)
async def whole(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """The session's header and head."""
    services, tenant, name = asked(request, session)
    min_seq, wait_ms = _wish(request, services.settings.wait_ms_max)
    return _stated(await services.reads.session(tenant, name, min_seq=min_seq, wait_ms=wait_ms))


@get(f"{ROOT}/head")
async def head(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Where the session stands."""
    services, tenant, name = asked(request, session)
    min_seq, wait_ms = _wish(request, services.settings.wait_ms_max)
    return _stated(await services.reads.head(tenant, name, min_seq=min_seq, wait_ms=wait_ms))


@get(f"{ROOT}/surface")
async def surface(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """The seqs of the events that the model sees, in order."""
    services, tenant, name = asked(request, session)
    min_seq, wait_ms = _wish(request, services.settings.wait_ms_max)
    return _stated(await services.reads.surface(tenant, name, min_seq=min_seq, wait_ms=wait_ms))


@get(f"{ROOT}/transcript")
async def transcript(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """A page of what a person saw: append-origin surface events. `from` and `to` are places in the transcript."""
    services, tenant, name = asked(request, session)
    min_seq, wait_ms = _wish(request, services.settings.wait_ms_max)
    start, stop, limit = _range(request, services.settings.page_events_max)
    found = await services.pages.transcript(tenant, name, start, stop, limit, min_seq=min_seq, wait_ms=wait_ms)
    return _stated(found)


@get(f"{ROOT}/events")
async def events(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """A page of events, every type, from seq `from` to before seq `to`."""
    services, tenant, name = asked(request, session)
    min_seq, wait_ms = _wish(request, services.settings.wait_ms_max)
    start, stop, limit = _range(request, services.settings.page_events_max)
    return _stated(await services.pages.events(tenant, name, start, stop, limit, min_seq=min_seq, wait_ms=wait_ms))


def _range(request: Asked, limit_max: int) -> tuple[int, int, int]:
    return (
        number(request, "from", 0),
        number(request, "to", 2**53),
        number(request, "limit", limit_max, 1, limit_max),
    )


READ_ROUTES = [messages, whole, head, surface, transcript, events]
