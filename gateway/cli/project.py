"""`surfacelog project`: a projector worker beside Kafka and Redis."""

import asyncio
import os
import signal
import sys
from typing import Literal

from prometheus_client import start_http_server

from gateway.cli.logs import start_logging
from gateway.cli.servers import named_servers
from producer.cache import CacheUnavailable
from producer.collector import calm_collector
from producer.connect import open_cache, open_log
from producer.log import Unavailable
from producer.settings import ServerSettings, read_settings
from projector.metrics import ProjectorMetrics
from projector.settings import ProjectorSettings
from projector.worker import Worker
from surfacelog.errors import ProtocolError

__all__ = ["project"]


def project(
    *,
    kafka: str | None = None,
    redis: str | None = None,
    member: str | None = None,
    metrics_port: int | None = None,
    once: bool = False,
    log_level: Literal["debug", "info", "warning", "error"] = "info",
    log_format: Literal["text", "json"] | None = None,
) -> int:
    """Project the log into the cache: run one of these on each machine that should share the work.

    Settings come from SURFACELOG_* as well; what is given here wins.

    Parameters
    ----------
    kafka
        Bootstrap servers host:port,….
    redis
        The Redis URL.
    member
        This worker's name in the group. A worker that restarts under its name gets its partitions back at once.
    metrics_port
        Where Prometheus may scrape, on loopback unless SURFACELOG_METRICS_HOST says otherwise; 0 serves none.
    once
        Project up to the log end seen at start, and end.
    log_level
        debug, info, warning or error.
    log_format
        text, or json: one object a line.
    """
    servers = named_servers(kafka, redis)
    given = {"member": member, "metrics_port": metrics_port, "log_format": log_format}
    settings = read_settings(ProjectorSettings, os.environ, given)
    start_logging(log_level, settings.log_format)
    if servers.embedded:
        raise ProtocolError(
            "misconfigured", "the embedded ledger projects by itself; give --kafka and --redis for a worker"
        )
    calm_collector()
    return asyncio.run(_run(servers, settings, once))


async def _run(servers: ServerSettings, settings: ProjectorSettings, once: bool) -> int:
    try:
        log = await open_log(servers)
    except Unavailable as error:
        raise ProtocolError("unavailable", f"the log does not answer: {error}") from None
    try:
        cache = await open_cache(servers)
    except CacheUnavailable as error:
        await log.close()
        raise ProtocolError("unavailable", f"the cache does not answer: {error}") from None
    metrics = ProjectorMetrics()
    if settings.metrics_port:
        start_http_server(settings.metrics_port, settings.metrics_host, metrics.registry)
    worker = Worker(log, cache, settings, metrics)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, worker.stop)
    try:
        if once:
            try:
                await worker.once()
            except (Unavailable, CacheUnavailable) as error:
                raise ProtocolError("unavailable", str(error)) from None
        else:
            print("surfacelog projects", flush=True)
            await worker.run()
    finally:
        await cache.close()
        await log.close()
    print("surfacelog projector stopped", file=sys.stderr)
    return 1 if worker.halted else 0
