"""Metrics that count nothing: Prometheus' own ask for the time, and nothing may depend on them."""

from collections.abc import Callable
from typing import Any

from projector.metrics import ProjectorMetrics

__all__ = ["SilentMetrics"]


class _Silent:
    def __getattr__(self, name: str) -> Any:
        return lambda *args, **kwargs: self


class SilentMetrics(ProjectorMetrics):
    """Takes every call and does nothing, but that `refolded` is called when a session is folded anew."""

    def __init__(self, refolded: Callable[[], None]) -> None:
        """Makes no registry."""
        self._refolded = refolded

    def took(self, stage: str, elapsed_s: float) -> None:
        """Not counted."""

    def decided(self, outcome: str, code: str, count: int) -> None:
        """Not counted."""

    def __getattr__(self, name: str) -> Any:
        if name == "refolded":
            self._refolded()
        return _Silent()
