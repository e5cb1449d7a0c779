"""The two event contracts as rule sets. Everything that they share is decided elsewhere."""

from collections.abc import Mapping

import msgspec

__all__ = ["CONTRACTS", "LOG_TYPES", "SURFACE_TYPES", "Contract"]

SURFACE_TYPES = frozenset(
    {"system/message", "developer/message", "user/message", "assistant/message", "tool/result"}
)
# Log-only types of the client whose formats these contracts are.
LOG_TYPES = frozenset(
    {
        "agent/inbox/spliced",
        "approval/asked",
        "approval/policy",
        "assistant/chunk",
        "compaction/end",
        "compaction/prune",
        "compaction/start",
        "compaction/summary",
        "goal/change",
        "job/registered",
        "job/settled",
        "permission/preset",
        "request/context",
        "request/header",
        "sandbox/mode",
        "session-log-deepseek/delivery-accepted",
        "session/end-seed",
        "session/title",
        "session/title-llm-request",
        "step/end",
        "step/start",
        "todo/write",
        "tool/call",
        "turn/end",
        "turn/start",
    }
)


class Contract(msgspec.Struct, frozen=True):
    """`start`, `end`: the keys of a replace's range. `strict`: the rules that v4 added (developer messages,
    request headers, image offload, system head, no sources on assistant messages, earlier replace ends)."""

    name: str
    surface_types: frozenset[str]
    log_types: frozenset[str]
    start: str
    end: str
    strict: bool


CONTRACTS: Mapping[str, Contract] = {
    "v4": Contract("v4", SURFACE_TYPES, LOG_TYPES | {"image/offload"}, "startSeq", "endSeq", True),
    "v0": Contract(
        "v0", SURFACE_TYPES - {"system/message", "developer/message"}, LOG_TYPES, "start", "end", False
    ),
}
