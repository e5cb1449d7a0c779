"""Routes of runs: a session that goes on from another one, and a run that goes on after a crash."""

import msgspec
from litestar import Response, post
from litestar.params import FromPath

from gateway.bodies import ClaimWish, Opening, read_claim_wish
from gateway.openings import header_of
from gateway.routes import SMALL_BODY_BYTES, Asked, answer, asked, body_of
from surfacelog.errors import ProtocolError

__all__ = ["RUN_ROUTES"]

ROOT = "/v1/sessions/{session:str}"


class _ForkWish(Opening, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A child as a create request describes it, and the seq of the last event that it inherits."""

    boundary: int = -1


_fork_wish = msgspec.json.Decoder(_ForkWish)


@post(f"{ROOT}/fork")
async def fork(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Makes a session that goes on from one of this session's events."""
    services, tenant, name = asked(request, session)
    try:
        wish = _fork_wish.decode(await body_of(request, SMALL_BODY_BYTES))
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ProtocolError("bad-request", f"the body cannot be read: {error}") from None
    fields = msgspec.structs.asdict(wish)
    boundary = fields.pop("boundary")
    header = header_of(Opening(**fields), services.now_ms())
    made = await services.producer.fork(tenant, name, header, boundary, open_id=wish.open_id)
    return answer(msgspec.json.encode(made), 201)


@post(f"{ROOT}/resume", status_code=200)
async def resume(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Claims the session and closes what an earlier run left open."""
    services, tenant, name = asked(request, session)
    wish: ClaimWish = read_claim_wish(await body_of(request, SMALL_BODY_BYTES))
    done = await services.producer.resume(tenant, name, wish.owner, takeover=wish.takeover, lease_ms=wish.lease_ms)
    return answer(msgspec.json.encode(done))


RUN_ROUTES = [fork, resume]
