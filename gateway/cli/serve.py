"""`surfacelog serve`: the whole ledger in one process, or a gateway beside Kafka and Redis."""

import asyncio
import logging
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path
from typing import Literal

from gateway.settings import GatewaySettings, doorkeeper_of
from producer.collector import calm_collector
from producer.limits import AppendLimits
from producer.secret import Secret
from producer.settings import ServerSettings, read_settings

__all__ = ["ADDRESS_FILE", "serve"]

# Says where the server over a data directory listens.
ADDRESS_FILE = "address"


def serve(
    *,
    kafka: str | None = None,
    redis: str | None = None,
    host: str | None = None,
    port: int | None = None,
    data: Path | None = None,
    log_level: Literal["debug", "info", "warning", "error"] = "warning",
) -> int:
    """Serve the HTTP API. Without --kafka everything runs in this process, its data in one directory.

    Settings come from SURFACELOG_* as well; what is given here wins.

    Parameters
    ----------
    kafka
        Bootstrap servers host:port,…: serve as a gateway beside Kafka and Redis.
    redis
        The Redis URL that goes with it.
    host
        The address to listen on; anything but loopback needs credentials.
    port
        The port; 0 takes a free one.
    data
        The data directory of the embedded mode.
    log_level
        debug, info, warning or error.
    """
    logging.basicConfig(level=log_level.upper(), format="%(asctime)s %(levelname)s %(name)s %(message)s")
    servers = read_settings(
        ServerSettings,
        os.environ,
        {
            "kafka": kafka,
            "redis": None if redis is None else Secret(redis),
            "data_dir": None if data is None else str(data),
        },
    )
    gateway = read_settings(GatewaySettings, os.environ, {"host": host, "port": port})
    limits = read_settings(AppendLimits, os.environ)
    # Before anything starts: a server that must not be reached is not opened at all.
    doorkeeper_of(gateway)
    calm_collector()
    asyncio.run(_run(servers, gateway, limits))
    return 0


async def _run(servers: ServerSettings, gateway: GatewaySettings, limits: AppendLimits) -> None:
    # Imported here, since every other command would wait for the web framework to load.
    from gateway.backend import backend
    from gateway.metrics import GatewayMetrics
    from gateway.serve import serve as serve_http
    from gateway.services import services_for

    async with AsyncExitStack() as stack:
        parts = await stack.enter_async_context(backend(servers, limits))
        where = f"embedded, data in {servers.data_path}" if servers.embedded else "on Kafka and Redis"
        services = services_for(
            gateway,
            parts.log,
            parts.cache,
            parts.producer,
            now_ms=lambda: time.time_ns() // 1_000_000,
            metrics=GatewayMetrics(parts.registry),
            keeper=parts.keeper,
        )

        def started(url: str) -> None:
            if servers.embedded:
                address = servers.data_path / ADDRESS_FILE
                address.write_text(url + "\n", encoding="utf-8")
                stack.callback(address.unlink, missing_ok=True)
            print(f"surfacelog serves {url} ({where})", flush=True)

        await serve_http(services, started)
    print("surfacelog stopped", file=sys.stderr)
