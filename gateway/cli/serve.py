"""`surfacelog serve`: the whole ledger in one process, or a gateway beside Kafka and Redis."""

import asyncio
import logging
import os
import sys
import time
from contextlib import AsyncExitStack
from pathlib import Path

from gateway.embedded import embedded
from gateway.metrics import GatewayMetrics
from gateway.serve import serve as serve_http
from gateway.services import services_for
from gateway.settings import GatewaySettings
from producer.limits import AppendLimits
from producer.secret import Secret
from producer.settings import ServerSettings, read_settings
from surfacelog.errors import ProtocolError

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
    log_level: str = "warning",
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
    asyncio.run(_run(servers, gateway, limits))
    return 0


async def _run(servers: ServerSettings, gateway: GatewaySettings, limits: AppendLimits) -> None:
    async with AsyncExitStack() as stack:
        if servers.embedded:
            if servers.redis is not None:
                raise ProtocolError("misconfigured", "a Redis without Kafka serves nothing; give --kafka too")
            parts = await stack.enter_async_context(embedded(servers.data_path, limits))
            log, cache, producer, registry = parts.log, parts.cache, parts.producer, parts.registry
            where = f"embedded, data in {servers.data_path}"
        else:
            raise ProtocolError("misconfigured", "not yet")
        services = services_for(
            gateway,
            log,
            cache,
            producer,
            now_ms=lambda: time.time_ns() // 1_000_000,
            metrics=GatewayMetrics(registry),
        )

        def started(url: str) -> None:
            if servers.embedded:
                address = servers.data_path / ADDRESS_FILE
                address.write_text(url + "\n", encoding="utf-8")
                stack.callback(address.unlink, missing_ok=True)
            print(f"surfacelog serves {url} ({where})", flush=True)

        await serve_http(services, started)
    print("surfacelog stopped", file=sys.stderr)
