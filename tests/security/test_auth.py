"""Credentials: the tenant comes from them alone, and nothing about them is given away."""

import time
from hashlib import sha256
from pathlib import Path
from typing import Any

import jwt
import pytest

from gateway.auth import Doorkeeper, JwtRule, check_bind, is_loopback, read_keys
from gateway.settings import GatewaySettings, doorkeeper_of
from producer.secret import Secret
from surfacelog.errors import ProtocolError

SECRET = b"0123456789abcdef0123456789abcdef"
RULE = JwtRule(SECRET, "HS256", "https://issuer.test", "surfacelog")


def digest(key: str) -> str:
    return sha256(key.encode()).hexdigest()


def token(key: bytes = SECRET, algorithm: str = "HS256", **changed: Any) -> str:
    claims = {
        "iss": "https://issuer.test",
        "aud": "surfacelog",
        "exp": time.time() + 60,
        "tenant": "acme",
    } | changed
    return jwt.encode({name: value for name, value in claims.items() if value is not None}, key, algorithm)


def refused(doorkeeper: Doorkeeper, authorization: str | None) -> str:
    with pytest.raises(ProtocolError) as refusal:
        doorkeeper.tenant_of(authorization)
    assert refusal.value.code == "unauthorized"
    return refusal.value.message


def test_each_key_opens_its_own_tenant() -> None:
    doorkeeper = Doorkeeper({digest("one"): "acme", digest("two"): "other"})
    assert doorkeeper.tenant_of("Bearer one") == "acme"
    assert doorkeeper.tenant_of("bearer two") == "other"


def test_all_bad_credentials_are_refused_in_the_same_words() -> None:
    doorkeeper = Doorkeeper({digest("one"): "acme"}, RULE)
    bad = [
        None,
        "",
        "one",
        "Basic one",
        "Bearer",
        "Bearer ",
        "Bearer three",
        f"Bearer {digest('one')}",
        "Bearer " + "x" * 9000,
        "Bearer \udcff",
        "Bearer a.b.c",
    ]
    assert len({refused(doorkeeper, authorization) for authorization in bad}) == 1


def test_a_token_of_the_issuer_opens_the_tenant_it_names() -> None:
    assert Doorkeeper({}, RULE).tenant_of(f"Bearer {token()}") == "acme"


@pytest.mark.parametrize(
    "changed",
    [
        {"iss": "https://elsewhere.test"},
        {"aud": "another"},
        {"exp": time.time() - 10},
        {"exp": None},
        {"iss": None},
        {"aud": None},
        {"tenant": None},
        {"tenant": ""},
        {"tenant": ["acme"]},
        {"nbf": time.time() + 3600},
    ],
)
def test_a_token_that_lacks_or_changes_a_pinned_claim_is_refused(changed: dict[str, Any]) -> None:
    refused(Doorkeeper({}, RULE), f"Bearer {token(**changed)}")


def test_a_token_cannot_choose_its_algorithm() -> None:
    doorkeeper = Doorkeeper({}, RULE)
    refused(doorkeeper, f"Bearer {token(key=SECRET * 2, algorithm='HS512')}")
    refused(doorkeeper, f"Bearer {jwt.encode({'tenant': 'acme'}, '', algorithm='none')}")
    refused(doorkeeper, f"Bearer {token(key=b'another secret of thirty-two bytes')}")


def test_a_public_key_is_no_shared_secret() -> None:
    from cryptography.hazmat.primitives.asymmetric.ec import SECP256R1, generate_private_key
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    private = generate_private_key(SECP256R1())
    public = private.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    rule = JwtRule(public, "ES256", RULE.issuer, RULE.audience)
    claims = {"iss": RULE.issuer, "aud": RULE.audience, "exp": time.time() + 60, "tenant": "acme"}
    assert Doorkeeper({}, rule).tenant_of(f"Bearer {jwt.encode(claims, private, 'ES256')}") == "acme"
    refused(Doorkeeper({}, rule), f"Bearer {token()}")


def test_without_credentials_only_loopback_is_served() -> None:
    check_bind("127.0.0.1", Doorkeeper())
    check_bind("::1", Doorkeeper())
    check_bind("0.0.0.0", Doorkeeper({digest("one"): "acme"}))  # noqa: S104
    for host in ("0.0.0.0", "::", "192.168.1.4", "example.org", ""):  # noqa: S104
        with pytest.raises(ProtocolError):
            check_bind(host, Doorkeeper())


def test_loopback_is_told_by_the_address() -> None:
    assert is_loopback("localhost")
    assert is_loopback("127.9.9.9")
    assert not is_loopback("127.0.0.1.example.org")


@pytest.mark.parametrize("text", ["acme", "acme xyz", "acme " + "g" * 64, "acme " + "a" * 63, "a b " + "a" * 64])
def test_a_key_line_that_cannot_be_read_is_named_by_its_number(text: str) -> None:
    with pytest.raises(ProtocolError) as refusal:
        read_keys(f"# fine\n{text}")
    assert "2" in refusal.value.message
    assert text not in refusal.value.message


def test_settings_make_the_doorkeeper(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# who may in\nacme {digest('one')}\n")
    secret = tmp_path / "secret"
    secret.write_bytes(SECRET)
    doorkeeper = doorkeeper_of(
        GatewaySettings(
            api_keys=Secret(f"other {digest('two')}"),
            api_keys_file=file,
            jwt_key_file=secret,
            jwt_algorithm="HS256",
            jwt_issuer=RULE.issuer,
            jwt_audience=RULE.audience,
        )
    )
    assert doorkeeper.tenant_of("Bearer one") == "acme"
    assert doorkeeper.tenant_of("Bearer two") == "other"
    assert doorkeeper.tenant_of(f"Bearer {token()}") == "acme"


def test_half_a_jwt_setting_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_bytes(b"short")
    with pytest.raises(ProtocolError):
        doorkeeper_of(GatewaySettings(jwt_key_file=file))
    with pytest.raises(ProtocolError):
        doorkeeper_of(GatewaySettings(jwt_key_file=file, jwt_algorithm="HS256", jwt_issuer="i", jwt_audience="a"))
    empty = tmp_path / "keys"
    empty.write_text("# nobody\n")
    with pytest.raises(ProtocolError):
        doorkeeper_of(GatewaySettings(api_keys_file=empty))


def test_no_secret_shows_in_a_repr() -> None:
    assert SECRET.decode() not in repr(RULE)
    assert "two" not in repr(GatewaySettings(api_keys=Secret("two")))
