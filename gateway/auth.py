"""Who is asking: the tenant comes from the credential alone, never from the request.

API keys are known by their SHA-256 and compared in constant time. A JWT must have the pinned algorithm, issuer
and audience. Without any credential configured a single tenant is served, on loopback only.
"""

import hmac
import ipaddress
from collections.abc import Mapping
from hashlib import sha256

import jwt
import msgspec

from gateway.tenant import LOCAL_TENANT
from surfacelog.errors import ProtocolError

__all__ = ["Doorkeeper", "JwtRule", "check_bind", "is_loopback", "read_keys"]

CREDENTIAL_BYTES_MAX = 8192
DIGEST_CHARS = 64


class JwtRule(msgspec.Struct, frozen=True):
    """What a JWT must be. `key`: the PEM of the issuer's public key, or the shared secret for HS256 and its like.
    `tenant_claim` names the claim that holds the tenant."""

    key: bytes
    algorithm: str
    issuer: str
    audience: str
    tenant_claim: str = "tenant"

    def __repr__(self) -> str:
        return f"JwtRule(algorithm={self.algorithm!r}, issuer={self.issuer!r}, key=***)"


class Doorkeeper:
    """Turns an `Authorization` header into a tenant. `keys` maps the hex SHA-256 of an API key to its tenant."""

    def __init__(self, keys: Mapping[str, str] | None = None, rule: JwtRule | None = None) -> None:
        self._keys = [(bytes.fromhex(digest), tenant) for digest, tenant in (keys or {}).items()]
        self._rule = rule

    @property
    def open(self) -> bool:
        """Whether everybody is let in as the one local tenant."""
        return not self._keys and self._rule is None

    def tenant_of(self, authorization: str | None) -> str:
        """The tenant of a `Bearer` credential; raises `unauthorized`, alike for missing, unknown and expired."""
        if self.open:
            return LOCAL_TENANT
        scheme, _, credential = (authorization or "").partition(" ")
        credential = credential.strip()
        if scheme.lower() == "bearer" and 0 < len(credential) <= CREDENTIAL_BYTES_MAX:
            tenant = self._by_key(credential) or self._by_token(credential)
            if tenant:
                return tenant
        raise ProtocolError("unauthorized", "send a valid credential as `Authorization: Bearer …`")

    def _by_key(self, credential: str) -> str | None:
        digest = sha256(credential.encode("utf-8", "surrogateescape")).digest()
        found = None
        # Every key is compared, so that the time tells nothing of which one matched.
        for known, tenant in self._keys:
            if hmac.compare_digest(known, digest):
                found = tenant
        return found

    def _by_token(self, credential: str) -> str | None:
        rule = self._rule
        if rule is None or credential.count(".") != 2:
            return None
        try:
            claims = jwt.decode(
                credential,
                rule.key,
                algorithms=[rule.algorithm],
                issuer=rule.issuer,
                audience=rule.audience,
                options={"require": ["exp", "iss", "aud"]},
            )
        except (jwt.PyJWTError, ValueError):
            return None
        tenant = claims.get(rule.tenant_claim)
        return tenant if isinstance(tenant, str) and tenant else None


def read_keys(text: str) -> dict[str, str]:
    """API keys from lines `tenant sha256-hex`; `#` starts a comment. Raises `misconfigured` with the number."""
    found: dict[str, str] = {}
    for number, line in enumerate(text.replace(",", "\n").splitlines(), start=1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        digest = words[1].lower() if len(words) == 2 else ""
        if len(digest) != DIGEST_CHARS or any(char not in "0123456789abcdef" for char in digest):
            raise ProtocolError(
                "misconfigured",
                f"API key {number}: write `tenant sha256`, the digest as {DIGEST_CHARS} hex digits",
            )
        found[digest] = words[0]
    return found


def is_loopback(host: str) -> bool:
    """Whether a server bound to `host` can be reached from this machine only."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def check_bind(host: str, doorkeeper: Doorkeeper) -> None:
    """Raises `misconfigured` when strangers could reach a server that asks for no credential."""
    if doorkeeper.open and not is_loopback(host):
        raise ProtocolError(
            "misconfigured",
            "a server that others can reach needs credentials; set SURFACELOG_API_KEYS_FILE or SURFACELOG_JWT_*, "
            "or bind to 127.0.0.1",
        )
