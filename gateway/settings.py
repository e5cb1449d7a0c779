"""Settings of a gateway, from `SURFACELOG_*`, and the doorkeeper that they ask for."""

from pathlib import Path
from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from gateway.auth import Doorkeeper, JwtRule, check_bind, read_keys
from producer.secret import Secret
from surfacelog.errors import ProtocolError

__all__ = ["GatewaySettings", "doorkeeper_of"]

MIB = 1024 * 1024
# A shared secret shorter than its digest can be guessed offline from one token.
SECRET_BYTES_MIN = 32

Bytes = Annotated[int, Meta(ge=1024, le=256 * MIB)]
Text = Annotated[str, Meta(min_length=1)]
Algorithm = Literal[
    "HS256",
    "HS384",
    "HS512",
    "RS256",
    "RS384",
    "RS512",
    "PS256",
    "PS384",
    "PS512",
    "ES256",
    "ES384",
    "ES512",
    "EdDSA",
]


class GatewaySettings(msgspec.Struct, frozen=True, kw_only=True):
    """`body_bytes_max`: the largest request body, lowered to what the log takes. `page_*`: bounds of one page of
    events. `wait_ms_max`: the longest that a read may ask to wait. `streams_max`: live tails open at once.
    `api_keys`: lines (or a comma-separated list) of `tenant sha256-hex`; `api_keys_file`: a file of the same."""

    host: Text = "127.0.0.1"
    port: Annotated[int, Meta(ge=0, le=65_535)] = 8750
    body_bytes_max: Bytes = 8 * MIB
    page_events_max: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    page_bytes_max: Bytes = 4 * MIB
    wait_ms_max: Annotated[int, Meta(ge=0, le=300_000)] = 30_000
    streams_max: Annotated[int, Meta(ge=1, le=100_000)] = 1000
    stream_heartbeat_ms: Annotated[int, Meta(ge=100, le=60_000)] = 10_000
    api_keys: Secret | None = None
    api_keys_file: Path | None = None
    jwt_key_file: Path | None = None
    jwt_algorithm: Algorithm | None = None
    jwt_issuer: Text | None = None
    jwt_audience: Text | None = None
    jwt_tenant_claim: Text = "tenant"


def doorkeeper_of(settings: GatewaySettings) -> Doorkeeper:
    """The doorkeeper; reads the key files. Raises `misconfigured`, also when the bind address needs one."""
    keys = read_keys(settings.api_keys.reveal()) if settings.api_keys is not None else {}
    if settings.api_keys_file is not None:
        keys |= read_keys(_read(settings.api_keys_file, "SURFACELOG_API_KEYS_FILE").decode("utf-8", "replace"))
    if not keys and (settings.api_keys is not None or settings.api_keys_file is not None):
        raise ProtocolError(
            "misconfigured", "SURFACELOG_API_KEYS or SURFACELOG_API_KEYS_FILE is set and holds no key"
        )
    doorkeeper = Doorkeeper(keys, _rule(settings))
    check_bind(settings.host, doorkeeper)
    return doorkeeper


def _rule(settings: GatewaySettings) -> JwtRule | None:
    file, algorithm = settings.jwt_key_file, settings.jwt_algorithm
    issuer, audience = settings.jwt_issuer, settings.jwt_audience
    if file is None and algorithm is None and issuer is None and audience is None:
        return None
    if file is None or algorithm is None or issuer is None or audience is None:
        raise ProtocolError(
            "misconfigured", "set SURFACELOG_JWT_KEY_FILE, _ALGORITHM, _ISSUER and _AUDIENCE, or none of them"
        )
    key = _read(file, "SURFACELOG_JWT_KEY_FILE").strip()
    if algorithm.startswith("HS") and len(key) < SECRET_BYTES_MIN:
        raise ProtocolError("misconfigured", f"a shared JWT secret has at least {SECRET_BYTES_MIN} bytes")
    return JwtRule(key, algorithm, issuer, audience, settings.jwt_tenant_claim)


def _read(path: Path, variable: str) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ProtocolError(
            "misconfigured", f"the file that {variable} names cannot be read ({error.strerror})"
        ) from None
