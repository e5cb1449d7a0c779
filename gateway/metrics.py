"""What a gateway counts, for Prometheus. Labels are routes and statuses, never a tenant or a session."""

from prometheus_client import CollectorRegistry, Counter, Histogram

__all__ = ["GatewayMetrics"]

_BUCKETS = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class GatewayMetrics:
    """Counters in the registry that is passed in."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        own = registry if registry is not None else CollectorRegistry()
        self.registry = own
        name = "surfacelog_gateway_"
        self.requests = Counter(name + "requests", "Answers", ["method", "route", "status"], registry=own)
        self.seconds = Histogram(
            name + "request_seconds", "Time to an answer", ["route"], buckets=_BUCKETS, registry=own
        )
        self.refusals = Counter(name + "refusals", "Refusals by code", ["code"], registry=own)
