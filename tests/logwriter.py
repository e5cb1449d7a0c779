"""A writer that puts records straight into a log and keeps what they must give: what tests take for the truth."""

import random
from typing import Any
from uuid import uuid4

import msgspec

from producer.log import EventLog
from surfacelog.accept import accept
from surfacelog.events import Draft, encode_line
from surfacelog.header import Header
from surfacelog.keys import partition_of, record_key
from surfacelog.records import KeyClaim, Record
from surfacelog.session import Session, draft
from surfacelog.state import SessionState

__all__ = ["LogWriter", "Truth"]


class Truth:
    """One session as it must be: the in-memory reference, and the state that a writer needs."""

    def __init__(self, header: Header) -> None:
        self.session = Session(header)
        self.state = SessionState()
        self.lines: list[bytes] = []

    @property
    def messages(self) -> list[bytes]:
        """What the model sees, as JSON."""
        return [message.json for message in self.session.messages]


class LogWriter:
    """`truths`: record key -> truth. `offsets`: of the records written, by partition."""

    def __init__(self, log: EventLog, seed: int = 1) -> None:
        self.log = log
        self.truths: dict[bytes, Truth] = {}
        self.random = random.Random(seed)
        self.replies = ""

    def partition(self, key: bytes) -> int:
        """Where the session's records go."""
        return partition_of(key, self.log.partitions)

    async def produce(self, key: bytes, record: Record) -> int:
        """Writes a record that means nothing to the truth; its offset."""
        return await self.log.produce(self.partition(key), key, record.headers(), record.value, 10_000)

    async def put(self, key: bytes, record: Record, outcome: str = "accepted") -> int:
        """Writes a record and decides it for the truth; its offset."""
        offset = await self.produce(key, record)
        verdict = accept(self.truths[key].state, record, offset)
        assert verdict.outcome == outcome, verdict
        return offset

    async def open(self, name: str, tenant: str = "t", **header: Any) -> bytes:
        """Opens a session; its record key."""
        key = record_key(tenant, name)
        truth = self.truths[key] = Truth(Header(id=name, created_at=1, **header))
        record = Record("open", uuid4().hex, truth.session.header.encode(), reply=self.replies)
        await self.put(key, record)
        return key

    async def commit(self, key: bytes, *drafts: Draft, claim: KeyClaim | None = None) -> int:
        """Appends events that must be accepted; the record's offset."""
        truth = self.truths[key]
        first = truth.session.next_seq
        lines = [encode_line(offered, first + index, 7) for index, offered in enumerate(drafts)]
        offset = await self.put(key, self.record(key, lines, key_claim=claim))
        truth.session.append_lines(lines)
        return offset

    def record(self, key: bytes, lines: list[bytes], key_claim: KeyClaim | None = None) -> Record:
        """A commit on the present head."""
        state = self.truths[key].state
        return Record(
            "commit",
            uuid4().hex,
            b"\n".join(lines),
            prev=state.chain,
            fence=state.fence,
            seq=state.next_seq,
            key=key_claim,
            reply=self.replies,
        )

    async def say(self, key: bytes, text: str) -> int:
        """Appends one user message."""
        return await self.commit(key, user(text))

    async def replace(self, key: bytes, first: int, last: int, text: str) -> int:
        """Replaces the nodes at positions first..last by one message."""
        nodes = self.truths[key].session.surface.nodes[first : last + 1]
        return await self.commit(key, replacement(text, nodes))

    async def reject(self, key: bytes) -> int:
        """Writes a commit that the fold rejects."""
        line = encode_line(user("late"), 10_000, 7)
        record = msgspec.structs.replace(self.record(key, [line]), seq=10_000)
        return await self.put(key, record, "rejected")

    async def step(self, key: bytes) -> int:
        """One random thing: mostly messages, sometimes a replace, an offload or a rejected commit."""
        nodes = self.truths[key].session.surface.nodes
        dice = self.random.random()
        if dice < 0.12 and len(nodes) > 3:
            first = self.random.randrange(len(nodes) - 2)
            return await self.replace(key, first, self.random.randrange(first, len(nodes)), f"so far {dice}")
        if dice < 0.2:
            return await self.reject(key)
        if dice < 0.3:
            return await self.commit(key, image(f"look {dice}"))
        if dice < 0.4:
            return await self._offload(key)
        if dice < 0.5:
            return await self.commit(key, draft("step/start", {"n": dice}), user(f"two {dice}"))
        return await self.say(key, f"said {dice}")

    async def _offload(self, key: bytes) -> int:
        entries = self.truths[key].session.surface.entries
        found = [node for node in entries if node.images and not node.offloaded]
        if not found:
            return await self.say(key, "no image")
        target = self.random.choice(found)
        return await self.commit(
            key, draft("image/offload", {"targets": [{"seq": target.seq, "imageIndexes": [0]}]})
        )


def user(text: str) -> Draft:
    """A user message."""
    return draft(
        "user/message", {"role": "user", "content": [{"type": "text", "text": text}]}, surface_op="append"
    )


def image(text: str) -> Draft:
    """A user message with an image."""
    blocks = [{"type": "text", "text": text}, {"type": "image", "data": "AAAA", "mimeType": "image/png"}]
    return draft("user/message", {"role": "user", "content": blocks}, surface_op="append")


def replacement(text: str, nodes: list[int]) -> Draft:
    """A user message in the place of some nodes."""
    return draft(
        "user/message",
        {"role": "user", "content": [{"type": "text", "text": text}]},
        surface_op={"op": "replace", "startSeq": nodes[0], "endSeq": nodes[-1]},
        source_event_seqs=nodes,
    )
