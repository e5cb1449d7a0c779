"""A state packed and unpacked at any moment goes on exactly as the state itself."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surfacelog.accept import accept
from surfacelog.records import KeyClaim, Record
from surfacelog.snapshot import Pieces, pieces, restore
from tests.unit.acts import TOOL, assistant, header, image, offload, result, said, user
from tests.unit.records_room import Writer, opened

STEPS = """
    commit commit commit future past chain fence keyed keyed again again reused expired claim stale release
    malformed duplicate duplicate replace offload header calls delete open
""".split()


class Schedule:
    """Makes one record after another from drawn numbers; some old ones come again."""

    def __init__(self) -> None:
        self.writer = opened()
        self.sent: list[Record] = []

    def record(self, step: str, number: int) -> Record | None:
        """The next record for the writer's present state."""
        record = self._record(step, number)
        if record is not None:
            self.sent.append(record)
        return record

    def _record(self, step: str, number: int) -> Record | None:
        make = getattr(self, f"_{step}", None)
        if make is not None:
            return make(number)
        return self.writer.commit(**self._bent(step, number))

    def _bent(self, step: str, number: int) -> dict[str, Any]:
        """What is unusual about a commit."""
        head = self.writer.state.next_seq
        return {
            "future": {"seq": head + number},
            "past": {"seq": max(0, head - number)},
            "chain": {"prev": b"x"},
            "fence": {"fence": f"{number}:me"},
            "keyed": {"key": KeyClaim(f"k{number}-{head}", "r", max(0, head - number))},
            "again": {"key": KeyClaim("same", "r", head)},
            "reused": {"key": KeyClaim("same", "other", head)},
            "expired": {"key": KeyClaim(f"old{number}", "r", 0)},
        }.get(step, {})

    def _claim(self, number: int) -> Record:
        return self.writer.claim("me")

    def _stale(self, number: int) -> Record:
        return self.writer.claim("me", number)

    def _release(self, number: int) -> Record:
        return self.writer.release()

    def _malformed(self, number: int) -> Record | None:
        return None if number % 2 else self.writer.commit(value=b"{")

    def _duplicate(self, number: int) -> Record:
        return self.sent[-1 - number % len(self.sent)] if self.sent else self.writer.commit()

    def _replace(self, number: int) -> Record:
        nodes = self.writer.state.surface.nodes
        return self.writer.commit(user(image(), over=(nodes[0], nodes[0])) if nodes else user(image()))

    def _offload(self, number: int) -> Record:
        nodes = self.writer.state.surface.nodes
        return self.writer.commit(offload((nodes[number % len(nodes)] if nodes else 0, [0])))

    def _header(self, number: int) -> Record:
        return self.writer.commit(header(*[TOOL][: number % 2]))

    def _calls(self, number: int) -> Record:
        return self.writer.commit(assistant("a", "b"), result("a"))

    def _delete(self, number: int) -> Record:
        return self.writer.delete(value=b"other") if number else self.writer.delete()

    def _open(self, number: int) -> Record:
        return self.writer.open()


def _same(a: Pieces, b: Pieces) -> None:
    assert a == b
    # The order of the windows decides what is forgotten next.
    assert list(a.recent) == list(b.recent)
    assert list(a.keys) == list(b.keys)


@settings(max_examples=150, deadline=None)
@given(
    st.lists(
        st.tuples(st.sampled_from(STEPS), st.integers(0, 5), st.booleans(), st.sampled_from([1, 1, 1, 70, 260])),
        min_size=1,
        max_size=30,
    )
)
def test_a_restored_state_folds_on_exactly_as_the_state_would(steps: list[tuple[str, int, bool, int]]) -> None:
    schedule = Schedule()
    writer = schedule.writer
    twin = restore(pieces(writer.state))
    for step, number, packed, times in steps:
        # Some steps are repeated until windows overflow.
        for _ in range(times if step in ("commit", "future", "keyed") else 1):
            record = schedule.record(step, number)
            if packed:
                twin = restore(pieces(twin))
            verdict = writer.put(record)
            assert accept(twin, record, writer.offset) == verdict
        _same(pieces(twin), pieces(writer.state))
    _same(pieces(restore(pieces(twin))), pieces(writer.state))


def test_pieces_survive_a_store_that_knows_only_bytes() -> None:
    schedule = Schedule()
    for step in ("keyed", "header", "calls", "replace", "future", "claim"):
        schedule.writer.put(schedule.record(step, 1))
    whole = pieces(schedule.writer.state)
    for field in ("meta", "headers", "tools", "recent", "keys"):
        for name, value in getattr(whole, field).items():
            assert type(name) is bytes
            assert type(value) is bytes
    assert whole.surface.count(b"\n") == len(schedule.writer.state.surface.entries)
    # Hashes come back in any order.
    mixed = Pieces(
        meta=dict(reversed(whole.meta.items())),
        surface=whole.surface,
        headers=dict(reversed(whole.headers.items())),
        tools=whole.tools,
        recent=dict(reversed(whole.recent.items())),
        keys=dict(reversed(whole.keys.items())),
    )
    _same(pieces(restore(mixed)), whole)


@pytest.mark.parametrize("field", sorted(pieces(opened().state).meta.keys() - {b"messages"}))
def test_a_missing_field_is_noticed(field: bytes) -> None:
    whole = pieces(opened().state)
    with pytest.raises((KeyError, ValueError)):
        restore(msgspec.structs.replace(whole, meta={k: v for k, v in whole.meta.items() if k != field}))


@pytest.mark.parametrize("bent", ["rows", "header", "tools", "calls", "number"])
def test_pieces_that_are_not_whole_are_noticed(bent: str) -> None:
    writer = opened()
    writer.put(writer.commit(user(said("u")), header(TOOL)))
    whole = pieces(writer.state)
    meta = dict(whole.meta)
    changes: dict[str, object] = {"meta": meta}
    if bent == "rows":
        changes["surface"] = b""
    elif bent == "tools":
        changes["tools"] = {}
    else:
        meta[{"header": b"header", "calls": b"calls", "number": b"next"}[bent]] = b"?"
    with pytest.raises((KeyError, ValueError, msgspec.MsgspecError)):
        restore(msgspec.structs.replace(whole, **changes))


def test_a_deleted_session_keeps_its_tombstone() -> None:
    writer = Writer(opened().state)
    writer.put(writer.commit())
    writer.put(writer.delete())
    twin = Writer(restore(pieces(writer.state)))
    assert twin.state.status == "deleted"
    assert twin.put(twin.commit(id="other")).code == "gone"
    assert twin.put(twin.open(id="another")).code == "gone"
