"""Stateless reads of one session. Every answer states the seq and the generation of the state that it shows.

Message bodies are joined as bytes and never decoded; `messages` is one round trip.
"""

from collections.abc import Sequence

import msgspec

from gateway.scripts import MESSAGES, SESSION
from gateway.view import View, Viewer
from producer.cache import Argument
from surfacelog.claim import Claim
from surfacelog.errors import LedgerError, ProtocolError
from surfacelog.header import read_header
from surfacelog.keys import SessionKeys, nonce_of
from surfacelog.snapshot import header_of
from surfacelog.surface import Node
from surfacelog.token import Token, read_token

__all__ = ["Answer", "Reads", "known_token"]

# How long a read waits for a state that it was told of, unless it says so itself.
WAIT_MS = 2000
_claim = msgspec.json.Decoder(Claim)
_rows = msgspec.json.Decoder(Node)
_NOBODY: list[Argument] = [b"", b"-1", b"-1"]


class Answer(msgspec.Struct, frozen=True, gc=False):
    """`body`: JSON. `seq`: the next event's. `token`: what the reader has now seen. `unchanged`: nothing new."""

    body: bytes
    seq: int
    generation: int
    token: str = ""
    unchanged: bool = False


class Reads:
    """The reads of one gateway."""

    def __init__(self, viewer: Viewer) -> None:
        self.viewer = viewer

    async def messages(
        self,
        tenant: str,
        session: str,
        *,
        after: str | None = None,
        known: str | None = None,
        min_seq: int = -1,
        wait_ms: int = WAIT_MS,
    ) -> Answer:
        """What the model should see next. `after`: a token; only what is new since then, within one generation.
        `known`: an If-None-Match header. `min_seq`: an event that must be in it. Raises `malformed` for what is no
        token, and what `Viewer.reach` does."""
        token = read_token(after) if after else None
        etag = known_token(known)
        args: list[Argument] = [*_seen(token), *_same(etag)]

        def seen(view: View) -> int:
            # A token of another opening says nothing about this one.
            return token.seq if token is not None and token.open_id == view.open_id else -1

        found = await self.viewer.reach(
            tenant, session, MESSAGES, _message_keys, args, min_seq, wait_ms / 1000, seen
        )
        start = found.rest[0]
        now = _token_of(found)
        if start < 0:
            return Answer(b"", found.seq, found.generation, now, unchanged=True)
        if start > found.count:
            raise ProtocolError("malformed", "the token is not one of this session's; read without it")
        bodies = found.rest[1]
        if bodies is None or start + len(bodies) != found.count:
            # The list is not the one that the state counts: a piece was lost, and is folded anew.
            raise await self.viewer.damaged(found)
        rebuilt = token is not None and not _continues(token, found)
        head = b'{"seq":%d,"generation":%d,"token":"%s","rebuilt":%s,%s"messages":[' % (
            found.seq,
            found.generation,
            now.encode(),
            b"true" if rebuilt else b"false",
            b'"faulted":true,' if found.faulted else b"",
        )
        return Answer(head + b",".join(bodies) + b"]}", found.seq, found.generation, now)

    async def head(self, tenant: str, session: str, *, min_seq: int = -1, wait_ms: int = WAIT_MS) -> Answer:
        """Where the session stands."""
        found = await self._session(tenant, session, b"head", min_seq, wait_ms)
        body = msgspec.json.encode(await self._head_of(session, found))
        return Answer(body, found.seq, found.generation, _token_of(found))

    async def session(self, tenant: str, session: str, *, min_seq: int = -1, wait_ms: int = WAIT_MS) -> Answer:
        """Header and head."""
        found = await self._session(tenant, session, b"head", min_seq, wait_ms)
        told = await self._head_of(session, found) | {"header": msgspec.Raw(header_of(_fields(found)))}
        return Answer(msgspec.json.encode(told), found.seq, found.generation, _token_of(found))

    async def surface(self, tenant: str, session: str, *, min_seq: int = -1, wait_ms: int = WAIT_MS) -> Answer:
        """The seqs that the model sees, in its order."""
        found = await self._session(tenant, session, b"surface", min_seq, wait_ms)
        meta = _fields(found)
        try:
            nodes = [node.seq for node in _rows.decode_lines(found.rest[1] or b"")]
        except msgspec.MsgspecError:
            raise await self.viewer.damaged(found) from None
        if len(nodes) != int(meta[b"nodes"]):
            raise await self.viewer.damaged(found)
        told = {
            "seq": found.seq,
            "generation": found.generation,
            "replaceGeneration": int(meta[b"replaces"]),
            "nodes": nodes,
        }
        return Answer(msgspec.json.encode(told), found.seq, found.generation, _token_of(found))

    async def _head_of(self, session: str, found: View) -> dict[str, object]:
        try:
            return _head_of(session, found)
        except (KeyError, ValueError, msgspec.MsgspecError, LedgerError):
            raise await self.viewer.damaged(found) from None

    async def _session(self, tenant: str, session: str, what: bytes, min_seq: int, wait_ms: int) -> View:
        return await self.viewer.reach(tenant, session, SESSION, _surface_key, [what], min_seq, wait_ms / 1000)


def _message_keys(own: SessionKeys) -> Sequence[bytes]:
    return (own.messages,)


def _surface_key(own: SessionKeys) -> Sequence[bytes]:
    return (own.surface,)


def _seen(token: Token | None) -> list[Argument]:
    """What the script compares a reader's token with; an append's token has seen no messages."""
    if token is None or token.generation < 0:
        return _NOBODY
    return [token.open_id.encode(), b"%d" % token.generation, b"%d" % token.count]


def _same(token: Token | None) -> list[Argument]:
    if token is None or token.generation < 0:
        return _NOBODY
    return [token.open_id.encode(), b"%d" % (token.seq + 1), b"%d" % token.generation]


def _continues(token: Token, found: View) -> bool:
    return token.open_id == found.open_id and token.generation == found.generation


def _token_of(found: View) -> str:
    nonce = nonce_of(found.pointer)
    return Token(found.open_id, found.version, found.seq - 1, found.generation, nonce, found.count).encode()


def known_token(header: str | None) -> Token | None:
    """The first of our etags in an If-None-Match header; anything else there matches nothing."""
    for candidate in (header or "").split(","):
        text = candidate.strip().removeprefix("W/").strip('"')
        try:
            return read_token(text)
        except ProtocolError:
            continue
    return None


def _fields(found: View) -> dict[bytes, bytes]:
    flat = found.rest[0] or ()
    return dict(zip(flat[::2], flat[1::2], strict=True))


def _head_of(session: str, found: View) -> dict[str, object]:
    meta = _fields(found)
    claim = _claim.decode(meta[b"claim"])
    inherited = read_header(header_of(meta)).inherited_event_count
    return {
        "id": session,
        "status": "faulted" if found.faulted else meta[b"status"].decode(),
        "seq": found.seq,
        "generation": found.generation,
        "replaceGeneration": int(meta[b"replaces"]),
        "chain": meta[b"chain"].hex(),
        "claim": _told(claim),
        "nodes": int(meta[b"nodes"]),
        "messages": found.count,
        "transcript": int(meta[b"transcript"]),
        "accepted": int(meta[b"accepted"]),
        "rejected": msgspec.json.decode(meta[b"rejected"]),
        "forking": found.seq < inherited,
        "token": _token_of(found),
    }


def _told(claim: Claim) -> dict[str, object] | None:
    """A claim as others may see it: without its id, which is what its owner writes with."""
    if not claim.owner:
        return None
    return {"epoch": claim.epoch, "owner": claim.owner, "leaseMs": claim.lease_ms, "time": claim.time}
