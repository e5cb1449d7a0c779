"""Garbage collection for a process that serves: Python's defaults are made for scripts.

A server keeps many small objects for a few milliseconds each. By default every 700 of them start a collection, and
those took a quarter of an append's time while they found next to nothing.
"""

import gc

__all__ = ["calm_collector"]

YOUNG_MAX = 20_000
SURVIVALS_MAX = 20


def calm_collector() -> None:
    """Collects rarely, and never again what exists now. For programs, not for libraries: it is the whole
    process's."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, SURVIVALS_MAX, SURVIVALS_MAX)
