"""Names of everything outside: record keys, partitions, Redis keys and channels.

Nothing else builds or parses a key. All Redis keys of a partition share one hash tag, so that
a session's state and its partition's checkpoint live and fail over together.
"""

import re
from functools import lru_cache

from surfacelog.errors import ProtocolError

__all__ = [
    "ID_BYTES_MAX",
    "PROJECTION_VERSION",
    "PartitionKeys",
    "SessionKeys",
    "messages_pointer",
    "nonce_of",
    "partition_of",
    "record_key",
    "session_of",
    "slot_of",
    "tag_of",
]

# Names the layout of the Redis keys and the rules behind their content; readers use what `serving` names.
PROJECTION_VERSION = 1
ID_BYTES_MAX = 512
SLOTS = 16384
_PLAIN = re.compile(rb"[A-Za-z0-9._~-]+\Z")


def encode_id(text: str) -> bytes:
    """One id as key bytes: plain characters stay, every other byte of its UTF-8 becomes %XX. Injective."""
    try:
        raw = text.encode()
    except UnicodeEncodeError:
        raise ProtocolError("malformed", "an id must be valid Unicode; send another id") from None
    if not raw or len(raw) > ID_BYTES_MAX:
        raise ProtocolError(
            "malformed", f"an id has 1 to {ID_BYTES_MAX} bytes; send another id", size_bytes=len(raw)
        )
    if _PLAIN.match(raw):
        return raw
    return b"".join(bytes((b,)) if _PLAIN.match(bytes((b,))) else b"%%%02X" % b for b in raw)


def _decode_id(raw: bytes) -> str:
    return re.sub(rb"%([0-9A-F]{2})", lambda m: bytes((int(m[1], 16),)), raw).decode()


@lru_cache(maxsize=65536)
def record_key(tenant: str, session: str) -> bytes:
    """The Kafka record key `tenant/session`; also the session's name in Redis keys."""
    return encode_id(tenant) + b"/" + encode_id(session)


def session_of(key: bytes) -> tuple[str, str]:
    """(tenant, session) of a record key; raises `malformed` when it is not one of ours."""
    tenant, slash, session = key.partition(b"/")
    try:
        if slash and record_key(_decode_id(tenant), _decode_id(session)) == key:
            return _decode_id(tenant), _decode_id(session)
    except (ValueError, ProtocolError):
        pass
    raise ProtocolError("malformed", "the record's key is not tenant/session")


def murmur2(data: bytes) -> int:
    """Kafka's murmur2 (32 bit, seed 0x9747b28c), so that other clients find the same partition."""
    mask, m, length = 0xFFFFFFFF, 0x5BD1E995, len(data)
    h = 0x9747B28C ^ length
    whole = length & ~3
    for i in range(0, whole, 4):
        k = int.from_bytes(data[i : i + 4], "little") * m & mask
        k = (k ^ k >> 24) * m & mask
        h = h * m & mask ^ k
    if length > whole:
        h = (h ^ int.from_bytes(data[whole:], "little")) * m & mask
    h = (h ^ h >> 13) * m & mask
    return h ^ h >> 15


@lru_cache(maxsize=65536)
def partition_of(key: bytes, partitions: int) -> int:
    """The partition of a record key, as Kafka's default partitioner places it."""
    return (murmur2(key) & 0x7FFFFFFF) % partitions


def slot_of(tag: bytes) -> int:
    """The Redis Cluster slot (CRC16/XMODEM mod 16384) of a hash tag."""
    crc = 0
    for byte in tag:
        crc ^= byte << 8
        for _ in range(8):
            crc = (crc << 1 ^ 0x1021 if crc & 0x8000 else crc << 1) & 0xFFFF
    return crc % SLOTS


@lru_cache(maxsize=4096)
def tag_of(partition: int, partitions: int, topic: str) -> bytes:
    """A hash tag for the partition whose slot is near partition/partitions of all: shards get even shares."""
    width = SLOTS / partitions
    low, high = int(partition * width), max(int((partition + 1) * width), int(partition * width) + 1)
    for salt in range(1 << 22):
        tag = b"%s.%d.%x" % (encode_id(topic), partition, salt)
        if low <= slot_of(tag) < high:
            return tag
    raise AssertionError("no tag found for partition")


class PartitionKeys:
    """Redis keys of one partition at one projection version."""

    __slots__ = (
        "_root",
        "_v",
        "checkpoint",
        "damaged",
        "dead",
        "directory",
        "faulted",
        "healing",
        "news",
        "serving",
        "tag",
        "version",
        "wanted",
    )

    def __init__(self, tag: bytes, version: int) -> None:
        self.tag = tag
        self.version = version
        self._root = b"sl:{%s}:" % tag
        self._v = self._root + b"%d:" % version
        self.serving = self._root + b"serving"
        self.news = self._root + b"news"  # sharded channel: which sessions of the partition went on
        self.wanted = self._root + b"wanted"  # sharded channel: sessions whose lock somebody waits for
        self.checkpoint = self._v + b"cp"
        self.directory = self._v + b"dir"
        self.damaged = self._v + b"damaged"  # sessions that somebody found not to be whole
        self.faulted = self._v + b"faulted"  # sessions that are parked now
        self.healing = self._v + b"healing"  # sessions that are being folded anew, and how often that was begun
        self.dead = self._v + b"dead"  # copies of the newest records that could not be read

    def session(self, key: bytes) -> "SessionKeys":
        """Keys of one session; `key` is its record key."""
        return SessionKeys(self._v + key + b":", self._root + key + b":lock")

    def verdicts(self, reply: bytes) -> bytes:
        """The sharded channel on which one producer hears of its verdicts in this partition."""
        return self._root + b"verdicts:" + reply


class SessionKeys:
    """Redis keys of one session. `messages` is followed by a pointer, `<contentGeneration>:<nonce>`."""

    __slots__ = (
        "headers",
        "lock",
        "messages",
        "meta",
        "offsets",
        "parked",
        "recent",
        "surface",
        "tail",
        "tools",
        "transcript",
        "used_keys",
    )

    def __init__(self, root: bytes, lock: bytes) -> None:
        self.meta = root + b"meta"
        self.surface = root + b"surface"
        self.messages = root + b"messages:"
        self.transcript = root + b"transcript"
        self.tail = root + b"tail"
        self.offsets = root + b"offsets"
        self.recent = root + b"recent"
        self.parked = root + b"parked"
        self.used_keys = root + b"keys"
        self.headers = root + b"headers"
        self.tools = root + b"tools"
        self.lock = lock

    def messages_at(self, pointer: bytes) -> bytes:
        """The list of derived messages that the pointer names."""
        return self.messages + pointer


def messages_pointer(content_generation: int, nonce: str) -> bytes:
    """Names a fresh list of derived messages; `meta` says which one is served."""
    return b"%d:%s" % (content_generation, nonce.encode())


def nonce_of(pointer: str) -> str:
    """The nonce in a pointer."""
    return pointer.partition(":")[2]
