"""Read tokens: what a reader has seen of a session, as opaque text that it hands back.

A token names its open and its projection version, so that one from another life of the cache is noticed.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from binascii import Error as Base64Error

import msgspec

from surfacelog.errors import ProtocolError

__all__ = ["Token", "read_token"]

TOKEN_BYTES_MAX = 2048


class Token(msgspec.Struct, frozen=True, gc=False, array_like=True, forbid_unknown_fields=True):
    """`open_id`: the session's open. `version`: of the projection that answered. `seq`: the highest seen, or -1.
    `generation`: the content generation, -1 when no messages were read (an append's token). `nonce`: of the
    message list. `count`: how many messages of that generation were read. `topic`: the topic's generation."""

    open_id: str
    version: int
    seq: int
    generation: int = -1
    nonce: str = ""
    count: int = 0
    topic: int = 0

    def encode(self) -> str:
        """The token as URL-safe text."""
        return urlsafe_b64encode(_encoder.encode(self)).rstrip(b"=").decode()


_encoder = msgspec.json.Encoder()
_decoder = msgspec.json.Decoder(Token)


def read_token(text: str) -> Token:
    """The token that `encode` wrote; raises `malformed` for anything else."""
    try:
        if not text.isascii() or len(text) > TOKEN_BYTES_MAX:
            raise ValueError("not a token's alphabet or length")
        raw = urlsafe_b64decode(text.encode() + b"=" * (-len(text) % 4))
        token = _decoder.decode(raw)
    except (Base64Error, ValueError, RecursionError, msgspec.MsgspecError):
        raise _malformed() from None
    # One text per token: what decodes leniently (stray characters, other spellings) is not ours.
    if token.encode() != text or min(token.version, token.count, token.topic) < 0:
        raise _malformed()
    if token.seq < -1 or token.generation < -1:
        raise _malformed()
    return token


def _malformed() -> ProtocolError:
    return ProtocolError("malformed", "the token cannot be read; send one exactly as it was given, or none")
