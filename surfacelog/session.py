"""A session in memory: the reference that every other path must equal. Keeps the lines, and nothing twice."""

import json
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
from msgspec import UNSET, Raw, UnsetType

from surfacelog.derive import derive
from surfacelog.errors import ContractError
from surfacelog.events import (
    Checked,
    Draft,
    Event,
    check_line,
    check_lines,
    decode_event,
    encode_line,
    seal,
)
from surfacelog.header import Header
from surfacelog.messages import Message, MessageCache
from surfacelog.node import Node, Plan
from surfacelog.surface import Surface

__all__ = ["Session", "draft"]

Json = Any
_encoder = msgspec.json.Encoder()


def draft(
    type: str,
    data: Json | bytes,
    *,
    surface_op: Json | bytes | UnsetType = UNSET,
    source_event_seqs: Sequence[int] | bytes | UnsetType = UNSET,
    ignorable: bool = False,
    time: int | UnsetType = UNSET,
) -> Draft:
    """An event to append. Values are written as JSON; `bytes` are JSON already and stay as they are.
    `time`: ms. Raises ContractError when a value has no lossless JSON form."""
    return Draft(
        type,
        _raw(data),
        time=time,
        ignorable=True if ignorable else UNSET,
        surface_op=UNSET if surface_op is UNSET else _raw(surface_op),
        source_event_seqs=UNSET if source_event_seqs is UNSET else _raw(source_event_seqs),
    )


def _raw(value: Any) -> Raw:
    if isinstance(value, Raw):
        return value
    if isinstance(value, bytes):
        return Raw(value)
    try:
        text = _encoder.encode(value)
        # msgspec writes NaN and Infinity as null: look closer where it wrote one.
        if b"null" not in text:
            return Raw(text)
    except (TypeError, OverflowError, UnicodeEncodeError, RecursionError, ValueError):
        pass
    return Raw(_encode_slowly(value))


def _encode_slowly(value: Any) -> bytes:
    try:
        return json.dumps(value, allow_nan=False, separators=(",", ":")).encode()
    except RecursionError:
        raise ContractError("depth-exceeded", "data nests too deep") from None
    except ValueError as error:
        raise ContractError("number-range", f"data has no lossless JSON form ({error})") from None
    except TypeError as error:
        raise ContractError("json-invalid", f"data has no JSON form ({error})") from None


class Session:
    """`header` says which contract, checks and vocabulary decide. Not for use from several threads at once."""

    __slots__ = ("_cache", "_lines", "_transcript", "header", "surface")

    def __init__(self, header: Header | None = None) -> None:
        self.header = header or Header(id="session", created_at=0)
        self.surface = Surface(self.header.contract, checks=self.header.checks, vocabulary=self.header.vocabulary)
        self._lines: list[bytes] = []
        self._transcript: list[int] = []
        self._cache = MessageCache(self._derive)

    @classmethod
    def load(cls, lines: Iterable[bytes], header: Header | None = None) -> "Session":
        """The session that the lines make, every one of them checked; raises ContractError."""
        session = cls(header)
        session.extend(list(lines))
        return session

    def extend(self, lines: Sequence[bytes]) -> None:
        """Appends the lines in order, each with its own seq and time; those before a line that is refused stay.
        Raises ContractError."""
        first = self.next_seq
        try:
            self._transcript.extend(self.surface.advance_all(check_lines(lines)))
        finally:
            self._lines.extend(lines[: self.next_seq - first])

    def append(
        self,
        type: str,
        data: Json | bytes,
        *,
        surface_op: Json | bytes | UnsetType = UNSET,
        source_event_seqs: Sequence[int] | bytes | UnsetType = UNSET,
        ignorable: bool = False,
        time: int | UnsetType = UNSET,
    ) -> int:
        """Appends one event and returns its seq; `time` (ms) is that of the event before when not given.
        Raises ContractError, and then nothing changed."""
        offered = draft(
            type,
            data,
            surface_op=surface_op,
            source_event_seqs=source_event_seqs,
            ignorable=ignorable,
            time=time,
        )
        return self.append_draft(offered)

    def append_draft(self, offered: Draft) -> int:
        """Appends one event as `append` does."""
        time = offered.time
        if time is UNSET:
            time = decode_event(self._lines[-1]).time if self._lines else self.header.created_at
        return self._take(*seal(offered, self.surface.next_seq, time))

    def append_many(self, drafts: Iterable[Draft]) -> range:
        """Appends all of the drafts or none; returns their seqs. Raises ContractError with `index`."""
        first = self.next_seq
        lines: list[bytes] = []
        time = decode_event(self._lines[-1]).time if self._lines else self.header.created_at
        for index, offered in enumerate(drafts):
            try:
                if offered.time is not UNSET:
                    time = offered.time
                lines.append(encode_line(offered, first + index, time))
            except ContractError as error:
                error.detail.setdefault("index", index)
                raise
        self.append_lines(lines)
        return range(first, self.next_seq)

    def append_line(self, line: bytes) -> int:
        """Appends an event as it is written, with its own seq and time; returns its seq. Raises ContractError."""
        return self._take(check_line(line), line)

    def append_lines(self, lines: Iterable[bytes]) -> None:
        """Appends all of the lines or none; raises ContractError with the `index` of the line that is refused."""
        done: list[Plan] = []
        try:
            for line in lines:
                plan = self.surface.plan_values(check_line(line))
                self._apply(plan, line)
                done.append(plan)
        except BaseException as error:
            for plan in reversed(done):
                self._revert(plan)
            if isinstance(error, ContractError):
                error.detail.setdefault("index", len(done))
            raise

    def _take(self, event: Checked, line: bytes) -> int:
        if self.surface.advance(event) == "append":
            self._transcript.append(event.seq)
        self._lines.append(line)
        return event.seq

    def _apply(self, plan: Plan, line: bytes) -> None:
        self.surface.apply(plan)
        self._lines.append(line)
        if plan.op == "append":
            self._transcript.append(plan.seq)

    def _revert(self, plan: Plan) -> None:
        self.surface.revert(plan)
        self._lines.pop()
        if plan.op == "append":
            self._transcript.pop()

    def _derive(self, node: Node) -> bytes | None:
        return derive(decode_event(self._lines[node.seq]), node.offloaded)

    @property
    def next_seq(self) -> int:
        """The seq that the next event will have; the number of events."""
        return self.surface.next_seq

    @property
    def lines(self) -> Sequence[bytes]:
        """The events as they are written, without newlines; read only."""
        return self._lines

    @property
    def events(self) -> tuple[Event, ...]:
        """The events in order; `data` of each is the bytes that came in."""
        return tuple(map(decode_event, self._lines))

    @property
    def transcript(self) -> tuple[int, ...]:
        """Seqs of the append-origin surface events: what a person saw."""
        return tuple(self._transcript)

    @property
    def messages(self) -> tuple[Message, ...]:
        """What the model sees next, in order."""
        return self._cache.messages(self.surface)
