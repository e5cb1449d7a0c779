"""Settings: one frozen struct per service, read once from `SURFACELOG_*` and checked before anything starts.

`read_settings` serves every room; `ServerSettings` says where the log and the cache are.
"""

import difflib
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, TypeVar

import msgspec
from msgspec import Meta
from msgspec.inspect import CollectionType, DictType, StructType, Type, UnionType, type_info

from producer.secret import Secret
from surfacelog.errors import ProtocolError

__all__ = ["ENVIRONMENT_PREFIX", "ServerSettings", "read_settings"]

ENVIRONMENT_PREFIX = "SURFACELOG_"
# What a client may set beside our own settings. Everything that decides durability or order is ours.
_PASSED_THROUGH = re.compile(
    r"(security|sasl|ssl|socket|client|broker\.address|reconnect|connections|metadata|api)\.|enable\.ssl\.|debug$"
)
Settings = TypeVar("Settings", bound=msgspec.Struct)
Milliseconds = Annotated[int, Meta(ge=1, le=86_400_000)]


class ServerSettings(msgspec.Struct, frozen=True, kw_only=True):
    """`kafka`: bootstrap servers `host:port,…`; None is the embedded mode, whose log is SQLite in `data_dir`.
    `redis`: its URL; None is the bundled server. `partitions` and `kafka_replication` count only when the
    topic is made, and are compared with it ever after. `kafka_properties`: security and connection settings
    of librdkafka by name, in the environment a JSON object."""

    kafka: Annotated[str, Meta(min_length=1)] | None = None
    redis: Secret | None = None
    topic: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,200}$")] = "surfacelog"
    partitions: Annotated[int, Meta(ge=1, le=10_000)] | None = None
    data_dir: Annotated[str, Meta(min_length=1)] = "./.surfacelog"
    kafka_replication: Annotated[int, Meta(ge=1, le=32)] | None = None
    kafka_properties: dict[str, Secret] = msgspec.field(default_factory=dict)
    kafka_compression: Literal["none", "lz4", "zstd"] = "lz4"
    kafka_linger_ms: Annotated[float, Meta(ge=0, le=100)] = 0.0
    start_timeout_ms: Milliseconds = 30_000
    # Longer than a leader election (9 s broker session by default), so that a producer rides it out.
    delivery_timeout_ms: Milliseconds = 30_000
    session_timeout_ms: Milliseconds = 6_000
    poll_interval_max_ms: Milliseconds = 60_000

    def __post_init__(self) -> None:
        for name in self.kafka_properties:
            if not _PASSED_THROUGH.match(name):
                raise ValueError(f"{name} is not passed on to Kafka: only security and connection settings are")
        if self.poll_interval_max_ms < self.session_timeout_ms:
            raise ValueError("poll_interval_max_ms must not be smaller than session_timeout_ms")

    @property
    def embedded(self) -> bool:
        """Whether the log is the SQLite file in `data_dir`."""
        return self.kafka is None

    @property
    def partition_count(self) -> int:
        """How many partitions a new log gets."""
        return self.partitions or (8 if self.embedded else 64)

    @property
    def data_path(self) -> Path:
        """The data directory, absolute."""
        return Path(self.data_dir).expanduser().absolute()


def read_settings(
    kind: type[Settings],
    environ: Mapping[str, str],
    overrides: Mapping[str, object] | None = None,
    *,
    owns: Sequence[str] = (),
) -> Settings:
    """A settings struct from `SURFACELOG_<FIELD>` variables; `overrides` (by field name, None is left out) win.
    An empty variable counts as unset. Lists are JSON or separated by commas, mappings JSON.

    Raises ProtocolError `misconfigured` naming the variable, never a secret. Every room reads its own struct
    from one environment, so a name that this struct does not know may be another's: it is refused only when it
    begins with one of `owns`, prefixes (`KAFKA_`) that no other struct uses. `KAFKA_` belongs to
    `ServerSettings` and is checked with it."""
    fields = {field.name: field.type for field in msgspec.structs.fields(kind)}
    owned = (*owns, "KAFKA_") if issubclass(kind, ServerSettings) else tuple(owns)
    _refuse_unknown(environ, fields, owned)
    found: dict[str, object] = {}
    for name, annotation in fields.items():
        text = environ.get(_variable(name))
        if text:
            found[name] = _read(text, type_info(annotation), _variable(name))
    found.update({name: value for name, value in (overrides or {}).items() if value is not None})
    try:
        return msgspec.convert(found, kind, strict=False, dec_hook=_decode)
    except msgspec.ValidationError as error:
        raise ProtocolError("misconfigured", _explain(str(error))) from None


def _variable(field: str) -> str:
    return ENVIRONMENT_PREFIX + field.upper()


def _refuse_unknown(environ: Mapping[str, str], fields: Mapping[str, Any], owned: Sequence[str]) -> None:
    known = {_variable(name) for name in fields}
    prefixes = tuple(ENVIRONMENT_PREFIX + prefix for prefix in owned)
    for variable in sorted(environ):
        if prefixes and variable.startswith(prefixes) and variable not in known:
            near = difflib.get_close_matches(variable, known, 1)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ProtocolError("misconfigured", f"{variable} is not a setting{hint}")


def _read(text: str, kind: Type, variable: str) -> object:
    """A text as what `convert` can take: collections are decoded, all else is left to its lax mode."""
    parts = kind.types if isinstance(kind, UnionType) else (kind,)
    if not any(isinstance(part, CollectionType | DictType | StructType) for part in parts):
        return text
    if text.lstrip()[:1] in ("[", "{"):
        try:
            return msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise ProtocolError("misconfigured", f"{variable}: {error}") from None
    if any(isinstance(part, DictType | StructType) for part in parts):
        raise ProtocolError("misconfigured", f"{variable}: expected a JSON object")
    return [part.strip() for part in text.split(",") if part.strip()]


def _decode(kind: type, value: object) -> object:
    if kind is Secret:
        if isinstance(value, Secret):
            return value
        if isinstance(value, str):
            return Secret(value)
        raise ValueError("expected a string")
    if kind is Path and isinstance(value, str):
        return Path(value)
    raise NotImplementedError(f"no setting is of type {kind.__name__}")


def _explain(error: str) -> str:
    """msgspec's message with the variable's name in place of its path."""
    text, _, path = error.partition(" - at `$")
    field = re.match(r"\.(\w+)", path)
    said = text[:1].lower() + text[1:]
    return f"{_variable(field[1])}: {said}" if field else said
