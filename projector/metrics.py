"""What the projector counts, for Prometheus."""

from contextlib import suppress

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

__all__ = ["ProjectorMetrics"]

_STAGE_BUCKETS = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10)


class ProjectorMetrics:
    """Counters and gauges in the registry that is passed in."""

    def __init__(self, registry: CollectorRegistry | None = None) -> None:
        own = registry if registry is not None else CollectorRegistry()
        name = "surfacelog_projector_"
        self.registry = own
        self.lag_records = Gauge(name + "lag_records", "Records not yet folded", ["partition"], registry=own)
        self.lag_seconds = Gauge(
            name + "lag_seconds", "Age of the newest folded record when it was folded", ["partition"], registry=own
        )
        self.verdicts = Counter(name + "verdicts", "Verdicts", ["outcome", "code"], registry=own)
        self.batches = Counter(name + "batches", "Script calls that moved a checkpoint", registry=own)
        self.records = Counter(name + "records", "Records folded", registry=own)
        self.refolded = Counter(name + "refolded_sessions", "Sessions folded anew from the log", registry=own)
        self.rebuilds = Counter(
            name + "rebuilds", "Partitions whose cache was lost, wholly or in part", registry=own
        )
        self.moved = Counter(name + "checkpoint_mismatches", "Checkpoints that another moved", registry=own)
        self.failures = Counter(name + "failures", "Errors that nobody foresaw; see the log", registry=own)
        self.parks = Counter(name + "parks", "Times that a session was parked after a fault", registry=own)
        self.parked = Gauge(name + "parked_sessions", "Sessions parked now", ["partition"], registry=own)
        self.halted = Gauge(name + "halted_partitions", "Partitions that stand still", registry=own)
        self.held = Gauge(name + "held_sessions", "Session states in memory", registry=own)
        self.stage_seconds = Histogram(
            name + "stage_seconds",
            "Time of fetch, load, fold and write",
            ["stage"],
            buckets=_STAGE_BUCKETS,
            registry=own,
        )
        # Looked up once: by name it costs more than the counting.
        self._stages = {stage: self.stage_seconds.labels(stage) for stage in ("fetch", "load", "fold", "write")}
        self._verdicts: dict[tuple[str, str], Counter] = {}

    def took(self, stage: str, elapsed_s: float) -> None:
        """A stage of a batch took so long."""
        self._stages[stage].observe(elapsed_s)

    def decided(self, outcome: str, code: str, count: int) -> None:
        """So many verdicts of one kind."""
        found = self._verdicts.get((outcome, code))
        if found is None:
            found = self._verdicts[outcome, code] = self.verdicts.labels(outcome, code)
        found.inc(count)

    def forget(self, partition: int) -> None:
        """The partition is another worker's from now on."""
        for gauge in (self.lag_records, self.lag_seconds, self.parked):
            with suppress(KeyError):
                gauge.remove(str(partition))
