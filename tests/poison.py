"""Records that end the process that folds them: the fold raises what no projection catches."""

from collections.abc import Callable

import pytest

from projector import fold as fold_module
from projector import refold as refold_module
from surfacelog.accept import accept
from surfacelog.records import Record
from surfacelog.state import SessionState
from surfacelog.verdict import Verdict

POISON = b"poison"


class Killed(BaseException):
    """The process is gone."""


def is_poisoned(record: Record | None, offset: int) -> bool:
    """Whether the record's bytes hold `POISON`."""
    return record is not None and POISON in record.value


def kill_at(patch: pytest.MonkeyPatch, ends: Callable[[Record | None, int], bool] = is_poisoned) -> None:
    """Until `patch` is undone, whoever folds a record for which `ends(record, offset)` holds is Killed."""

    def accept_or_die(state: SessionState, record: Record | None, offset: int) -> Verdict:
        if ends(record, offset):
            raise Killed
        return accept(state, record, offset)

    patch.setattr(fold_module, "accept", accept_or_die)
    patch.setattr(refold_module, "accept", accept_or_die)
