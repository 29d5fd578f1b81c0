"""JWT of an issuer: only what its keys signed, for this audience, in its time; and keys that change, hang or are none."""

from __future__ import annotations

import asyncio
import base64
import json
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import httpx
import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from gateway.access.authenticator import Presented, Proof
from gateway.access.gate import Gate
from gateway.access.jwks import BYTES_MAX, RETRY_S, read_keys
from gateway.access.limits import LimitSettings
from gateway.access.oidc import LEEWAY_S, Oidc
from gateway.access.settings import OidcSettings
from tests.gateway.access.rig import guarded_door
from tests.gateway.door_client import ROWS, problem
from twinlog.errors import ConfigError, Unauthenticated, Unavailable

ISSUER, AUDIENCE, URL = "https://id.example", "twinlog-shop", "https://id.example/keys"
RSA, OTHER = rsa.generate_private_key(65537, 2048), rsa.generate_private_key(65537, 2048)
EC = ec.generate_private_key(ec.SECP256R1())


def jwk(key: Any, kid: str, **more: Any) -> dict[str, Any]:
    algorithm = jwt.algorithms.RSAAlgorithm if isinstance(key, rsa.RSAPrivateKey) else jwt.algorithms.ECAlgorithm
    return {**algorithm.to_jwk(key.public_key(), as_dict=True), "kid": kid, **more}


def keys(*given: dict[str, Any]) -> bytes:
    return json.dumps({"keys": list(given)}).encode()


def claims(**more: Any) -> dict[str, Any]:
    said = {"iss": ISSUER, "aud": AUDIENCE, "sub": "ann", "exp": int(time.time()) + 600, "groups": ["dba"], **more}
    return {name: value for name, value in said.items() if value is not None}


def signed(said: dict[str, Any], key: Any = RSA, algorithm: str = "RS256", kid: str | None = "k1") -> str:
    return jwt.encode(said, key, algorithm, headers={} if kid is None else {"kid": kid})


def settings(**more: Any) -> OidcSettings:
    grants = {"dba": "admin:* reader:*", "ops": "operator"}
    return OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks_url=URL, grants=grants, **more)


class Issuer:
    """Answers with `answer`, and counts how often it was asked."""

    def __init__(self, answer: Callable[[], Any]) -> None:
        self.answer, self.asked = answer, 0

    async def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked += 1
        found = self.answer()
        if asyncio.iscoroutine(found):
            found = await found
        return found if isinstance(found, httpx.Response) else httpx.Response(200, content=found)


class Now:
    def __init__(self) -> None:
        self.s = 1000.0

    def __call__(self) -> float:
        return self.s


def oidc(issuer: Issuer, now: Now | None = None, **more: Any) -> Oidc:
    return Oidc(settings(**more), now or Now(), httpx.MockTransport(issuer))


def shown(token: str) -> dict[str, Any]:
    """Returns the scope of a request with a token."""
    return {"headers": [(b"authorization", f"Bearer {token}".encode())]}


async def _proof(one: Oidc, token: str) -> Proof:
    found = await one.authenticate(Presented(token))
    assert found is not None
    return found


async def _refusal(one: Oidc, token: str) -> str:
    with pytest.raises(Unauthenticated) as refused:
        await one.authenticate(Presented(token))
    assert refused.value.refusal not in refused.value.message
    return refused.value.refusal


@pytest.fixture
async def known() -> AsyncIterator[Oidc]:
    one = oidc(Issuer(lambda: keys(jwk(RSA, "k1"), jwk(EC, "k2"), jwk(OTHER, "k3", alg="PS256"))))
    yield one
    await one.close()


@pytest.mark.parametrize(("key", "algorithm", "kid"), [
    (RSA, "RS256", "k1"), (RSA, "PS512", "k1"), (EC, "ES256", "k2"), (OTHER, "PS256", "k3"),
])
async def test_a_token_of_the_issuer(known: Oidc, key: Any, algorithm: str, kid: str) -> None:
    said = claims(groups=["dba", "others", 7])
    proof = await _proof(known, signed(said, key, algorithm, kid))
    assert (proof.caller.name, proof.caller.kind) == ("ann", "oidc")
    assert proof.caller.grants.texts() == ["admin:*", "reader:*"]
    assert proof.until_s == said["exp"] + LEEWAY_S


@pytest.mark.parametrize(("groups", "wanted"), [
    ("ops", ["operator"]), (["ops", "dba"], ["admin:*", "operator", "reader:*"]), (None, []), ([], []), ({"dba": True}, []),
    ([["dba"]], []), ("dba ops", []), ("admin:*", []),
])
async def test_what_is_granted_stands_in_the_configuration(known: Oidc, groups: Any, wanted: list[str]) -> None:
    assert (await _proof(known, signed(claims(groups=groups)))).caller.grants.texts() == wanted


@pytest.mark.parametrize(("claim", "more", "wanted"), [
    ("realm_access.roles", {"realm_access": {"roles": ["ops", "offline_access"]}}, ["operator"]),
    ("realm_access.roles", {"realm_access.roles": ["dba"], "realm_access": {"roles": ["ops"]}}, ["admin:*", "reader:*"]),
    ("https://example.com/groups", {"https://example.com/groups": ["ops"]}, ["operator"]),
    ("realm_access.roles", {"realm_access": ["ops"]}, []), ("realm_access.roles", {"realm_access": None}, []),
    ("realm_access", {"realm_access": {"roles": ["ops"]}}, []), ("", {}, []), ("..", {}, []), ("groups.", {}, []),
])
async def test_the_claim_may_be_a_way_into_the_token(claim: str, more: dict[str, Any], wanted: list[str]) -> None:
    one = oidc(Issuer(lambda: keys(jwk(RSA, "k1"))), claim=claim)
    assert (await _proof(one, signed(claims(**more)))).caller.grants.texts() == wanted
    await one.close()


def _part(value: dict[str, Any]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value).encode()).rstrip(b"=").decode()


def _by_a_secret() -> str:
    """HS256, with the issuer's public key as the shared secret: the oldest trick of all."""
    import hashlib
    import hmac

    from cryptography.hazmat.primitives import serialization as how

    public = RSA.public_key().public_bytes(how.Encoding.PEM, how.PublicFormat.SubjectPublicKeyInfo)
    text = f"{_part({'alg': 'HS256', 'typ': 'JWT', 'kid': 'k1'})}.{_part(claims())}"
    mac = hmac.new(public, text.encode(), hashlib.sha256).digest()
    return f"{text}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"


@pytest.mark.parametrize(("token", "why"), [
    (lambda: f"{_part({'alg': 'none', 'kid': 'k1'})}.{_part(claims())}.", "never taken"),
    (lambda: f"{_part({'alg': 'NONE', 'kid': 'k1'})}.{_part(claims())}.eHg", "never taken"),
    (lambda: f"{_part({'alg': ['RS256'], 'kid': 'k1'})}.{_part(claims())}.eHg", "never taken|does not hold"),
    (_by_a_secret, "never taken"),
    (lambda: signed(claims(aud="other")), "Audience"),
    (lambda: signed(claims(aud=None)), "aud"),
    (lambda: signed(claims(iss="https://evil.example")), "issuer"),
    (lambda: signed(claims(exp=int(time.time()) - 120)), "expired"),
    (lambda: signed(claims(exp=int(time.time()) - 86_400)), "expired"),
    (lambda: signed(claims(exp=None)), "exp"),
    (lambda: signed(claims(nbf=int(time.time()) + 86_400)), "not yet valid"),
    (lambda: signed(claims(sub=None)), "sub"),
    (lambda: signed(claims(sub="")), "the claim 'sub'"),
    (lambda: signed(claims(sub="ann\x1b[2J")), "the claim 'sub'"),
    (lambda: signed(claims(sub="a" * 200)), "the claim 'sub'"),
    (lambda: signed(claims(), OTHER), "Signature"),
    (lambda: signed(claims(), kid="k9"), "no key 'k9'"),
    (lambda: signed(claims(), kid=None), "no key"),
    (lambda: signed(claims(), OTHER, "RS256", "k3"), "signs by PS256"),
    (lambda: signed(claims(), RSA, "RS256", "k2"), "does not hold"),
    (lambda: "a.b.c", "does not hold"),
    (lambda: "..", "does not hold"),
    (lambda: signed(claims())[:-4] + "AAAA", "Signature"),
])
async def test_what_is_not_the_issuers_is_refused(known: Oidc, token: Callable[[], str], why: str) -> None:
    assert re.search(why, await _refusal(known, token()))


async def test_what_is_no_jwt_is_left_to_others(known: Oidc) -> None:
    for bearer in ("", "twinlog_x", "a.b", "a.b.c.d"):
        assert await known.authenticate(Presented(bearer)) is None


# ---- keys that change
async def test_a_new_key_is_fetched_once_for_all_who_need_it() -> None:
    given = [keys(jwk(RSA, "k1"))]
    issuer, now = Issuer(lambda: given[-1]), Now()
    one = oidc(issuer, now)
    await _proof(one, signed(claims()))
    given.append(keys(jwk(OTHER, "k2")))
    now.s += RETRY_S
    found = await asyncio.gather(*(_proof(one, signed(claims(sub=f"n{n}"), OTHER, kid="k2")) for n in range(20)))
    assert [proof.caller.name for proof in found] == [f"n{n}" for n in range(20)]
    assert issuer.asked == 2
    assert "no key 'k1'" in await _refusal(one, signed(claims())), "a key that was taken back signs nothing any more"


async def test_unknown_keys_make_few_fetches() -> None:
    issuer, now = Issuer(lambda: keys(jwk(RSA, "k1"))), Now()
    one = oidc(issuer, now)
    for number in range(50):
        await _refusal(one, signed(claims(), kid=f"x{number}"))
    assert issuer.asked == 1


async def test_a_key_that_was_taken_back_ends_what_it_proved_whoever_found_that_out() -> None:
    """Its proofs are kept at the gate; a token of the new key, and no refresh, brings the new keys."""
    given = [keys(jwk(RSA, "k1"))]
    now = Now()
    one = oidc(Issuer(lambda: given[-1]), now)
    gate = Gate([one], LimitSettings(), wall_s=time.time, now_s=now)
    old, new = signed(claims()), signed(claims(), OTHER, kid="k2")
    assert await gate.is_known(shown(old))
    await gate.refresh()
    given.append(keys(jwk(OTHER, "k2")))
    now.s += RETRY_S
    assert await gate.is_known(shown(new))
    await gate.refresh()
    assert not await gate.is_known(shown(old))
    assert await gate.is_known(shown(new))
    await gate.close()


async def test_keys_that_cannot_be_fetched_are_asked_for_again_soon(capfd: pytest.CaptureFixture[str]) -> None:
    given: list[Any] = [httpx.Response(503)]
    issuer, now = Issuer(lambda: given[-1]), Now()
    one = oidc(issuer, now)
    await one.refresh()
    assert "none were read yet" in one.fault
    given.append(b"[]")
    for _ in range(3):
        now.s += RETRY_S
        await one.refresh()
        await one.refresh()
    assert issuer.asked == 4
    given.append(keys(jwk(RSA, "k1")))
    now.s += RETRY_S
    await one.refresh()
    assert one.fault == ""
    assert capfd.readouterr().out.count("cannot be read") == 2, "each fault is logged once"


async def test_keys_are_fetched_again_in_time() -> None:
    given = [keys(jwk(RSA, "k1"))]
    issuer, now = Issuer(lambda: given[-1]), Now()
    one = oidc(issuer, now, refresh_s=60.0)
    assert await one.refresh()
    assert not await one.refresh()
    now.s += 61
    assert not await one.refresh(), "the same keys: nothing that was proven before is in doubt"
    given.append(keys(jwk(OTHER, "k1")))
    now.s += 61
    assert await one.refresh()
    assert issuer.asked == 3


async def test_an_issuer_that_hangs_stops_nobody_else() -> None:
    begun, never = asyncio.Event(), asyncio.Event()
    given: list[Callable[[], Any]] = [lambda: keys(jwk(RSA, "k1"))]

    async def hang() -> httpx.Response:
        begun.set()
        await never.wait()
        raise AssertionError

    issuer, now = Issuer(lambda: given[-1]()), Now()
    one = oidc(issuer, now, fetch_deadline_s=0.2)
    await _proof(one, signed(claims()))
    given.append(hang)
    now.s += RETRY_S
    waiting = asyncio.create_task(one.authenticate(Presented(signed(claims(), kid="k2"))))
    await begun.wait()
    await _proof(one, signed(claims(sub="ben")))  # judged while the fetch hangs
    assert not waiting.done()
    with pytest.raises(Unavailable, match="not known whether this token is valid"):
        await waiting
    with pytest.raises(Unavailable):
        await one.authenticate(Presented(signed(claims(), kid="k2")))  # at once, and without another fetch
    assert issuer.asked == 2
    await one.close()


@pytest.mark.parametrize("answer", [
    b"", b"[]", b"{}", b'{"keys": 3}', b'{"keys": [{"kty": "none"}]}', b"x" * (BYTES_MAX + 1), httpx.Response(500),
    httpx.Response(302, headers={"location": "https://evil.example/keys"}),
])
async def test_what_is_no_set_of_keys_changes_nothing(answer: Any) -> None:
    given: list[Any] = [keys(jwk(RSA, "k1"))]
    now = Now()
    one = oidc(Issuer(lambda: given[-1]), now)
    await _proof(one, signed(claims()))
    await one.refresh()
    given.append(answer)
    now.s += 1000
    assert one.fault == ""
    assert not await one.refresh()
    await _proof(one, signed(claims()))
    assert "https://" in one.fault
    assert "stay valid" in one.fault
    given.append(given[0])
    now.s += 1000
    await one.refresh()
    assert one.fault == ""


async def test_without_keys_nothing_is_known() -> None:
    one = oidc(Issuer(lambda: httpx.Response(503)))
    with pytest.raises(Unavailable) as late:
        await one.authenticate(Presented(signed(claims())))
    assert late.value.fields["retry_after_s"] == RETRY_S


# ---- a file
async def test_keys_of_a_file_are_read_again(tmp_path: Path) -> None:
    path = tmp_path / "keys.json"
    path.write_bytes(keys(jwk(RSA, "k1")))
    one = Oidc(OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=path, grants={"dba": "operator"}), Now())
    await _proof(one, signed(claims()))
    assert not await one.refresh()
    path.write_bytes(keys(jwk(OTHER, "k1")))
    assert await one.refresh()
    assert "Signature" in await _refusal(one, signed(claims()))
    path.unlink()
    assert not await one.refresh()
    await _proof(one, signed(claims(), OTHER))


@pytest.mark.parametrize("content", [None, b"{"])
def test_a_file_of_keys_that_is_none_stops_the_start(tmp_path: Path, content: bytes | None) -> None:
    path = tmp_path / "keys.json"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match="keys of https://id"):
        Oidc(OidcSettings(issuer=ISSUER, audience=AUDIENCE, jwks_file=path), Now())


def test_a_key_that_encrypts_signs_nothing() -> None:
    assert list(read_keys(keys(jwk(RSA, "k1", use="enc"), jwk(OTHER, "k2", use="sig")))) == ["k2"]


async def test_at_a_door_the_reason_is_the_sites_alone(known: Oidc) -> None:
    async with guarded_door(more=[known]) as door:
        def bearer(token: str) -> dict[str, str]:
            return {"Authorization": f"Bearer {token}"}

        assert (await door.http.get(ROWS, headers=bearer(signed(claims())))).status_code == 200
        problem(await door.http.put(f"{ROWS}/UA,1", json={}, headers=bearer(signed(claims()))), 403, "missing-grant")
        answer = await door.http.get(ROWS, headers=bearer(signed(claims(aud="other"))))
        problem(answer, 401, "unauthenticated")
        assert "udience" not in answer.text


