"""Whether this server lives, whether it can serve, and its figures. A credential is asked for the figures only."""

import asyncio
from collections.abc import Awaitable

import msgspec
from litestar import Response, get
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from gateway.routes import Asked, answer, only, services_of
from producer.cache import CacheUnavailable
from producer.log import Unavailable
from surfacelog.errors import ProtocolError

__all__ = ["HEALTH_ROUTES"]

READY_TIMEOUT_S = 3.0


@get("/healthz")
async def alive(request: Asked) -> Response[bytes]:
    """The process answers."""
    return answer(b'{"status":"ok"}')


@get("/readyz")
async def ready(request: Asked) -> Response[bytes]:
    """Log and cache answer, and the projector runs if it is in this process; says what does not hold, and nothing
    about where it is."""
    services = services_of(request)
    log, cache = await asyncio.gather(
        _holds(services.log.ends([0], int(READY_TIMEOUT_S * 1000))), _holds(services.cache.check())
    )
    holds = {"log": log, "cache": cache}
    if services.keeper is not None:
        holds["projector"] = services.keeper.ready
    body = msgspec.json.encode({part: "ok" if held else "unavailable" for part, held in holds.items()})
    return answer(body, 200 if all(holds.values()) else 503)


async def _holds(check: Awaitable[object]) -> bool:
    try:
        async with asyncio.timeout(READY_TIMEOUT_S):
            await check
    except (Unavailable, CacheUnavailable, ProtocolError, TimeoutError):
        return False
    return True


@get("/metrics")
async def metrics(request: Asked) -> Response[bytes]:
    """Figures for Prometheus: for everybody only where everybody is on this machine."""
    services = services_of(request)
    services.doorkeeper.tenant_of(only(request, "authorization"))
    body = generate_latest(services.metrics.registry)
    return Response(body, media_type=CONTENT_TYPE_LATEST)


HEALTH_ROUTES = [alive, ready, metrics]
