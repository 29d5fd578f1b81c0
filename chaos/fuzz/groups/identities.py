"""The readers of who asks: the header with a token, JWT and the keys of an issuer, client certificates, files of tokens."""

from __future__ import annotations

import asyncio
import base64
import functools
import json
import tempfile
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any

import jwt
import msgspec
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from chaos.fuzz.target import Target, driven
from gateway.access.authenticator import Presented, Proof
from gateway.access.certificates import Certificates
from gateway.access.gate import Gate, bearer_of, table_name
from gateway.access.grants import Grants, parse_grants
from gateway.access.jwks import read_keys
from gateway.access.limits import LimitSettings
from gateway.access.needs import NEEDS
from gateway.access.oidc import Oidc
from gateway.access.settings import OidcSettings
from gateway.access.token_file import TokenFile
from gateway.access.tokens import TokenList, read_tokens, with_token, write_tokens
from twinlog.errors import ConfigError, Forbidden, InvalidInput, Unauthenticated, Unavailable

_ISSUER, _AUDIENCE, _NOW = "https://id.example", "twinlog", datetime(2026, 11, 24, 12, tzinfo=UTC)
_SIGNING = ed25519.Ed25519PrivateKey.from_private_bytes(b"7" * 32)
_TRIED_S = -310.0  # by its clock a fetch of keys has only just been tried
_REFUSED = (Unauthenticated, Unavailable)
_ROUTES = sorted(NEEDS)


def targets() -> list[Target]:
    folder = Path(tempfile.mkdtemp(prefix="twinlog-fuzz-"))
    tokens, oidc = folder / "tokens.json", Oidc(_settings(folder), lambda: _TRIED_S)
    tokens.write_bytes(write_tokens(_list()))
    known = _Unchanged(tokens, _NOW.timestamp)
    gate = Gate(
        [known, oidc, Certificates({"cn:ann": "operator"})], LimitSettings(), wall_s=_NOW.timestamp, now_s=lambda: 0.0,
        sleep=_at_once,
    )
    return [
        Target("bearer header", _header, lambda data: bearer_of(data), (Unauthenticated,)),
        Target("authorization at the gate", _asking, _admitted(gate), (Unauthenticated, Unavailable, Forbidden)),
        Target("JWT, its parts", _parts, _authenticated(oidc, _from_parts), _REFUSED),
        Target("JWT, header and claims", _parts_as_json, _authenticated(oidc, _from_json), _REFUSED, structure="json"),
        Target(
            "JWT, as sent",
            lambda chance: _from_parts(_parts(chance)).encode(),
            _authenticated(oidc, lambda data: data.decode("latin-1")),
            _REFUSED,
            repair=_signed_again,
        ),
        Target("keys of an issuer", _keys, read_keys, (ValueError,), structure="json"),
        Target(
            "file of tokens", lambda chance: write_tokens(_list()), _read_tokens, (ConfigError,), write_tokens, structure="json"
        ),
        Target("grants", _grants, lambda data: parse_grants(data.decode("latin-1").split()), (InvalidInput,), _written),
        Target("client certificate", _certificate, _read_certificate, (Unauthenticated,)),
    ]


# ---- tokens of the site
def _list() -> TokenList:
    made = TokenList()
    for name, grants, ends in (
        ("ann", ["operator", "reader:*"], None),
        ("app", ["writer:orders_*"], datetime(2027, 1, 1, tzinfo=UTC)),
    ):
        made = with_token(made, name, f"twinlog_{name}", grants, _NOW, ends)
    return made


def _read_tokens(data: bytes) -> TokenList:
    """As a site reads it, and judges by it whoever asks."""
    found = read_tokens(data)
    path = _scratch() / "tokens.json"
    path.write_bytes(data)
    known = TokenFile(path, _NOW.timestamp)
    msgspec.json.encode(known.shown())
    for entry in found.tokens:
        bearing = msgspec.structs.replace(entry, sha256=_digest_of_known())
        path.write_bytes(write_tokens(TokenList([bearing])))
        with suppress(Unauthenticated):  # it expired
            driven(TokenFile(path, _NOW.timestamp).authenticate(Presented("twinlog_known")))
    return found


@functools.cache
def _scratch() -> Path:
    return Path(tempfile.mkdtemp(prefix="twinlog-fuzz-"))


@functools.cache
def _digest_of_known() -> str:
    return with_token(TokenList(), "known", "twinlog_known", [], _NOW, None).tokens[0].sha256


def _grants(chance: Random) -> bytes:
    return b" ".join(
        chance.sample([b"reader:*", b"writer:orders_*", b"admin:a", b"operator", b"metrics"], chance.randrange(1, 5))
    )


def _written(grants: Grants) -> bytes:
    return " ".join(grants.texts()).encode()


# ---- the gate
def _header(chance: Random) -> bytes:
    return chance.choice(
        (b"Bearer twinlog_ann", b"bearer twinlog_app", b"BEARER  twinlog_nobody ", b"Basic YTpi", b"Bearer a.b.c")
    )


def _asking(chance: Random) -> bytes:
    """Lines: method, path, and each value of the header."""
    method, route = chance.choice(_ROUTES)
    return b"\n".join(
        (
            method.encode(),
            route.encode(),
            chance.choice((b"orders_1", b"o%72ders", b"x~1")),
            _header(chance),
            *([_header(chance)] if chance.random() < 0.2 else []),
        )
    )


class _Unchanged(TokenFile):
    """An unknown token makes the gate look at the file again: here without a thread."""

    async def refresh(self) -> bool:
        return self._changed() is not None


async def _at_once(seconds: float) -> None: ...


def _admitted(gate: Gate) -> Callable[[bytes], Any]:
    loop = asyncio.new_event_loop()  # of looks that requests make
    weakref.finalize(gate, loop.close)

    def read(data: bytes) -> Any:
        method, route, table, *values = [*data.split(b"\n"), b"", b"", b""][: max(3, data.count(b"\n") + 1)]
        scope: dict[str, Any] = {
            "method": method.decode("latin-1"),
            "path": route.decode("latin-1"),
            "headers": [(b"authorization", value) for value in values if value],
        }
        need = NEEDS.get((scope["method"], scope["path"]), NEEDS["GET", "/v1/cluster"])
        for value in values[:1]:
            gate.hot(value, (), scope["method"] == "PUT", table)
        table_name(table.decode("latin-1"))
        budget = loop.run_until_complete(gate.admit(scope, need, scope["path"], table.decode("latin-1")))
        if budget is not None:
            budget.leave()
        return None

    return read


# ---- OIDC
def _settings(folder: Path) -> OidcSettings:
    public = jwt.algorithms.OKPAlgorithm.to_jwk(_SIGNING.public_key(), as_dict=True)
    (folder / "keys.json").write_text(json.dumps({"keys": [{**public, "kid": "k1", "use": "sig"}]}))
    return OidcSettings(issuer=_ISSUER, audience=_AUDIENCE, jwks_file=folder / "keys.json", grants={"dba": "admin:* reader:*"})


def _said(chance: Random) -> tuple[dict[str, Any], dict[str, Any]]:
    claims = {
        "iss": _ISSUER,
        "aud": chance.choice((_AUDIENCE, [_AUDIENCE, "x"])),
        "sub": "ann",
        "exp": 4_000_000_000,
        "groups": ["dba"],
        "nbf": 5,
        "iat": 5,
    }
    return {"alg": "EdDSA", "kid": "k1", "typ": "JWT"}, claims


def _parts(chance: Random) -> bytes:
    return b"\n".join(json.dumps(part).encode() for part in _said(chance))


def _parts_as_json(chance: Random) -> bytes:
    return json.dumps(_said(chance)).encode()


def _coded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _token(header: bytes, claims: bytes) -> str:
    said = f"{_coded(header)}.{_coded(claims)}"
    return f"{said}.{_coded(_SIGNING.sign(said.encode()))}"


def _from_parts(data: bytes) -> str:
    header, _, claims = data.partition(b"\n")
    return _token(header, claims)


def _from_json(data: bytes) -> str:
    try:
        said = json.loads(data)
        return _token(*(json.dumps(part).encode() for part in said[:2]))
    except (ValueError, TypeError, KeyError, RecursionError):
        return _token(data, data)


def _signed_again(data: bytes) -> bytes:
    said, _, _ = data.rpartition(b".")
    return said + b"." + _coded(_SIGNING.sign(said)).encode()


def _authenticated(oidc: Oidc, token_of: Callable[[bytes], str]) -> Callable[[bytes], Proof | None]:
    def read(data: bytes) -> Proof | None:
        proof = driven(oidc.authenticate(Presented(token_of(data))))
        assert proof is None or isinstance(proof.until_s, float)
        return proof

    return read


@functools.cache
def _public_keys() -> list[dict[str, Any]]:
    made: list[tuple[Any, Any]] = [
        (jwt.algorithms.RSAAlgorithm, rsa.RSAPublicNumbers(65537, Random(7).getrandbits(2048) | 1 << 2047 | 1).public_key()),
        (jwt.algorithms.ECAlgorithm, ec.derive_private_key(77, ec.SECP256R1()).public_key()),
        (jwt.algorithms.OKPAlgorithm, _SIGNING.public_key()),
    ]
    return [
        {**algorithm.to_jwk(key, as_dict=True), "kid": f"k{number}", "use": "sig"}
        for number, (algorithm, key) in enumerate(made)
    ]


def _keys(chance: Random) -> bytes:
    return json.dumps({"keys": chance.sample(_public_keys(), chance.randrange(1, 4))}).encode()


# ---- certificates
def _certificate(chance: Random) -> bytes:
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann")])
    names = [
        x509.UniformResourceIdentifier("spiffe://example.org/orders"),
        x509.DNSName("ann.example"),
        x509.RFC822Name("ann@example.org"),
    ]
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(_SIGNING.public_key()).serial_number(7)
    builder = builder.not_valid_before(_NOW).not_valid_after(datetime(2030, 1, 1, tzinfo=UTC))
    builder = builder.add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
    if chance.random() < 0.8:
        builder = builder.add_extension(
            x509.SubjectAlternativeName(chance.sample(names, chance.randrange(1, 4))), critical=False
        )
    return builder.sign(_SIGNING, None).public_bytes(Encoding.DER)


def _read_certificate(data: bytes) -> Proof | None:
    lines = base64.encodebytes(data).decode()
    pem = f"-----BEGIN CERTIFICATE-----\n{lines}-----END CERTIFICATE-----\n"
    return driven(Certificates({"cn:ann": "operator"}).authenticate(Presented("", (pem,))))
