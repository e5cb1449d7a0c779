"""Routes that change a session: create, append, claim, release, delete; and the verdict on a commit."""

from typing import Any, Literal, cast

import msgspec
from litestar import Response, delete, get, post
from litestar.params import FromPath

from gateway.bodies import Append, read_claim_wish, read_opening
from gateway.openings import header_of
from gateway.paths import session_path
from gateway.routes import SMALL_BODY_BYTES, Asked, answer, asked, body_of, number, only, services_of
from gateway.services import Services
from producer.append import IdempotencyKey
from surfacelog.errors import ProtocolError

__all__ = ["WRITE_ROUTES"]

ROOT = "/v1/sessions/{session:str}"
TIMEOUT_MS_MAX = 120_000


@post("/v1/sessions")
async def create(request: Asked) -> Response[bytes]:
    """Makes a session."""
    services = services_of(request)
    tenant = services.doorkeeper.tenant_of(only(request, "authorization"))
    wish = read_opening(await body_of(request, SMALL_BODY_BYTES))
    header = header_of(wish, services.now_ms())
    made = await services.producer.create(tenant, header, open_id=wish.open_id)
    told = {
        "id": header.id,
        "openId": made.open_id,
        "seq": made.next_seq,
        "offset": made.offset,
        "chain": made.chain,
        "token": made.token,
    }
    return answer(msgspec.json.encode(told), 201, {"Location": session_path(header.id)})


@post(f"{ROOT}/events")
async def append(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Appends one event or several, all or none."""
    services, tenant, name = asked(request, session)
    wish = await services.bodies.read(await body_of(request, _body_bytes_max(services)))
    done = await services.producer.append(
        tenant,
        name,
        wish.drafts,
        expected_seq=_number_of(request, wish, "expectedSeq", wish.expected_seq, 2**53),
        key=_key_of(request),
        fence=only(request, "surfacelog-claim"),
        ack=_ack_of(request, wish),
        timeout_ms=_number_of(request, wish, "timeoutMs", wish.timeout_ms, TIMEOUT_MS_MAX),
    )
    return answer(msgspec.json.encode(done), 201)


def _body_bytes_max(services: Services) -> int:
    # A body is hardly longer than the record made of it: what the log cannot take is not worth reading.
    return min(services.settings.body_bytes_max, services.log.size_bytes_max)


def _number_of(request: Asked, wish: Append, name: str, said: int | None, high: int) -> int | None:
    if name in request.query_params:
        return number(request, name, 0, 0, high)
    if said is not None and not 0 <= said <= high:
        raise ProtocolError("bad-request", f"{name} is a whole number from 0 to {high}")
    return said


def _ack_of(request: Asked, wish: Append) -> Literal["accepted", "logged"]:
    found = request.query_params.get("ack") or wish.ack or "accepted"
    if found not in ("accepted", "logged"):
        raise ProtocolError("bad-request", "ack is accepted or logged")
    return cast(Literal["accepted", "logged"], found)


def _key_of(request: Asked) -> IdempotencyKey | None:
    key = only(request, "idempotency-key")
    since = number(request, "since", -1)
    return None if key is None else IdempotencyKey(key, None if since < 0 else since)


@get(f"{ROOT}/commits/{{commit:str}}")
async def verdict(request: Asked, session: FromPath[str], commit: FromPath[str]) -> Response[bytes]:
    """What became of a commit whose answer was lost."""
    services, tenant, name = asked(request, session)
    found = await services.producer.verdict(tenant, name, commit)
    told: dict[str, Any] = {"commitId": commit, "outcome": "unknown"}
    if found is not None:
        told = {
            "commitId": commit,
            "outcome": found.outcome,
            "landed": found.landed,
            "code": found.code,
            "seq": found.seq,
            "count": found.count,
            "offset": found.offset,
        }
    return answer(msgspec.json.encode(told))


@post(f"{ROOT}/claim", status_code=200)
async def claim(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Takes the session for one owner."""
    services, tenant, name = asked(request, session)
    wish = read_claim_wish(await body_of(request, SMALL_BODY_BYTES))
    held = await services.producer.claim(tenant, name, wish.owner, takeover=wish.takeover, lease_ms=wish.lease_ms)
    return answer(msgspec.json.encode(held))


@post(f"{ROOT}/release", status_code=200)
async def release(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Gives a claim up."""
    services, tenant, name = asked(request, session)
    fence = only(request, "surfacelog-claim")
    if not fence:
        raise ProtocolError("bad-request", "send the claim's fence as Surfacelog-Claim")
    await services.producer.release(tenant, name, fence)
    return answer(b"{}")


@delete(ROOT, status_code=200)
async def remove(request: Asked, session: FromPath[str]) -> Response[bytes]:
    """Ends the session for good."""
    services, tenant, name = asked(request, session)
    await services.producer.delete(tenant, name)
    return answer(b"{}")


WRITE_ROUTES = [create, append, verdict, claim, release, remove]
