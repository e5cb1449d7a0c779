"""The HTTP application: routes, refusals and figures around the services that it is given."""

import time
from typing import Any, cast

from litestar import Litestar
from litestar.datastructures import State
from litestar.enums import ScopeType
from litestar.types import ASGIApp, Message, Receive, Scope, Send

from gateway.metrics import GatewayMetrics
from gateway.origin import LocalOnly
from gateway.paths import ExactPaths
from gateway.routes import EXCEPTION_HANDLERS
from gateway.routes_health import HEALTH_ROUTES
from gateway.routes_reads import READ_ROUTES
from gateway.routes_runs import RUN_ROUTES
from gateway.routes_stream import STREAM_ROUTES
from gateway.routes_writes import WRITE_ROUTES
from gateway.services import Services

__all__ = ["create_app"]


def create_app(services: Services) -> ASGIApp:
    """The ASGI application. Litestar's own body limit is off: the routes read up to theirs."""
    app = Litestar(
        route_handlers=[*READ_ROUTES, *WRITE_ROUTES, *RUN_ROUTES, *STREAM_ROUTES, *HEALTH_ROUTES],
        exception_handlers=EXCEPTION_HANDLERS,
        openapi_config=None,
        request_max_body_size=None,
        state=State({"services": services}),
        logging_config=None,
    )
    routed = ExactPaths(cast(ASGIApp, app))
    return Measured(LocalOnly(routed) if services.doorkeeper.open else routed, services.metrics)


class Measured:
    """ASGI middleware: counts answers and their times by route."""

    def __init__(self, app: ASGIApp, metrics: GatewayMetrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != ScopeType.HTTP:
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()
        asked = cast(dict[str, Any], scope)

        async def counted(message: Message) -> None:
            if message["type"] == "http.response.start":
                route = asked.get("path_template") or "-"
                self._metrics.requests.labels(asked["method"], route, str(message["status"])).inc()
                self._metrics.seconds.labels(route).observe(time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, counted)
