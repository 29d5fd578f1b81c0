"""The gate: what is kept of a proof, and for how long; the hot path by the same judgement; what is said of a refusal."""

from __future__ import annotations

import asyncio
import contextlib
from datetime import timedelta
from typing import Any
from urllib.parse import unquote

import pytest
import structlog
from hypothesis import given
from hypothesis import strategies as st
from structlog.testing import capture_logs

from gateway.access.authenticator import Presented, Proof, refused
from gateway.access.caller import CALLER, Caller
from gateway.access.certificates import Certificates
from gateway.access.gate import DECISIONS_MAX, PROOFS_MAX, Gate, LastProof, bearer_of, certificates_of
from gateway.access.grants import parse_grants
from gateway.access.limits import LimitSettings
from gateway.access.needs import IDENTITY
from gateway.access.token_file import changing, new_token
from gateway.access.tokens import with_token, without_token
from gateway.http.hot_path import HotProtocol
from tests.gateway.access.rig import NOW, Clock, GuardedDoor, guarded_door
from tests.gateway.access.test_certificates import pem
from tests.gateway.door_client import ROWS, problem
from twinlog.errors import Unauthenticated

GRANTS = parse_grants(["reader:*", "writer:orders"])


class Anybody:
    """Knows every bearer token as a caller of that name, and counts how often it was asked."""

    def __init__(self, until_s: float | None = None) -> None:
        self.until_s, self.asked, self.changed = until_s, 0, False
        self.held: asyncio.Event | None = None

    async def authenticate(self, presented: Presented) -> Proof | None:
        self.asked += 1
        if self.held is not None:
            await self.held.wait()
        if presented.bearer.startswith("no"):
            raise refused("it begins with no")
        return Proof(Caller(presented.bearer, "test", GRANTS), self.until_s) if presented.bearer else None

    async def refresh(self) -> bool:
        return self.changed

    async def close(self) -> None: ...


def gate_of(one: Anybody, clock: Clock | None = None) -> Gate:
    clock = clock or Clock()
    return Gate([one], LimitSettings(), wall_s=clock, now_s=clock)


def scope_of(*values: str) -> dict[str, Any]:
    headers = [(b"authorization", value.encode()) for value in values]
    return {"type": "http", "method": "GET", "path": "/v1/cluster", "headers": headers, "client": ("192.0.2.7", 1)}


async def _admit(gate: Gate, *values: str) -> Caller:
    scope = scope_of(*values)
    budget = await gate.admit(scope, IDENTITY, "/v1/cluster", "")
    assert budget is not None
    budget.leave()
    caller: Caller = scope[CALLER]
    return caller


# ---- what is kept
async def test_a_proof_is_asked_for_once() -> None:
    one = Anybody()
    gate = gate_of(one)
    for _ in range(3):
        assert (await _admit(gate, "Bearer ann")).name == "ann"
    assert one.asked == 1


async def test_a_proof_is_kept_no_longer_than_it_is_valid() -> None:
    clock = Clock()
    one = Anybody(clock.s + 10)
    gate = gate_of(one, clock)
    await _admit(gate, "Bearer ann")
    assert gate.hot(b"Bearer ann", (), False, b"t") is not None
    clock.s += 10
    assert gate.hot(b"Bearer ann", (), False, b"t") is None
    await _admit(gate, "Bearer ann")
    assert one.asked == 2


async def test_no_proof_outlives_a_change() -> None:
    one = Anybody()
    gate = gate_of(one)
    await _admit(gate, "Bearer ann")
    await gate.refresh()
    assert gate.hot(b"Bearer ann", (), False, b"t") is not None
    one.changed = True
    await gate.refresh()
    assert gate.hot(b"Bearer ann", (), False, b"t") is None


async def test_a_proof_that_was_begun_before_a_change_is_not_kept() -> None:
    """It may be of the file that is no longer there: the request is let in, and the next one proven again."""
    one = Anybody()
    gate = gate_of(one)
    one.held = asyncio.Event()
    waiting = asyncio.create_task(_admit(gate, "Bearer ann"))
    await asyncio.sleep(0)
    one.changed = True
    await gate.refresh()
    one.held.set()
    await waiting
    assert gate.hot(b"Bearer ann", (), False, b"t") is None


# ---- what a connection keeps
async def test_a_token_that_is_revoked_is_refused_at_the_next_request_of_an_open_connection() -> None:
    one, last = Anybody(), LastProof()
    gate = gate_of(one)
    await _admit(gate, "Bearer ann")
    for _ in range(2):
        assert gate.hot(b"Bearer ann", (), False, b"t", last) is not None
    one.changed = True
    await gate.refresh()
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is None
    await _admit(gate, "Bearer ann")  # other grants, perhaps, and then those count
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is gate.hot(b"Bearer ann", (), False, b"t")


async def test_an_open_connection_keeps_no_proof_longer_than_it_is_valid() -> None:
    clock, last = Clock(), LastProof()
    gate = gate_of(Anybody(clock.s + 10), clock)
    await _admit(gate, "Bearer ann")
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is not None
    clock.s += 10
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is None


async def test_each_request_of_a_connection_is_its_own_callers() -> None:
    """A proxy sends the requests of many over one connection; a header that begins as the last one is another one."""
    last = LastProof()
    gate = gate_of(Anybody())
    shown = ("Bearer ann", "Bearer bob", "Bearer ann")
    for value in shown:
        await _admit(gate, value)
    seen = [gate.hot(value.encode(), (), False, b"t", last) for value in shown]
    assert seen == [gate.hot(value.encode(), (), False, b"t") for value in shown]
    assert seen[0] is not seen[1]
    for stranger in (b"Bearer an", b"Bearer annn", b"Bearer eve", b"", None):
        assert gate.hot(stranger, (), False, b"t", last) is None


async def test_grants_and_limits_of_an_open_connection_are_those_of_now() -> None:
    last = LastProof()
    gate = gate_of(Anybody())
    await _admit(gate, "Bearer ann")
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is not None
    gate.apply(LimitSettings(concurrent=1))
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is None, "proven anew, as every caller is after a change"
    await _admit(gate, "Bearer ann")
    budget = gate.hot(b"Bearer ann", (), False, b"t", last)
    assert budget is not None
    budget.count(0)
    assert gate.hot(b"Bearer ann", (), False, b"t", last) is None, "one is under way"


async def test_what_is_kept_is_bounded() -> None:
    gate = gate_of(Anybody())
    for number in range(PROOFS_MAX + 10):
        await _admit(gate, f"Bearer t{number}")
    assert len(gate._known) == PROOFS_MAX
    for number in range(DECISIONS_MAX + 10):
        gate.hot(f"Bearer t{PROOFS_MAX}".encode(), (), False, b"t%d" % number)
    assert all(len(known.decided) <= DECISIONS_MAX for known in gate._known.values())


async def test_no_token_is_kept() -> None:
    gate = gate_of(Anybody())
    await _admit(gate, "Bearer a-secret")
    assert "a-secret" not in repr(list(gate._known))
    assert "a-secret" not in repr(Presented("a-secret"))


# ---- what is presented
@pytest.mark.parametrize("value", [
    b"", b"Bearer", b"Bearer ", b"Basic YTpi", b"Bearer\ttoken", b"token", b"Bearer \xff", b"Bearer " + b"x" * (1 << 15),
])
def test_what_is_no_bearer_token(value: bytes) -> None:
    with pytest.raises(Unauthenticated):
        bearer_of(value)


@given(st.binary(max_size=60))
def test_any_header_is_a_token_or_refused(value: bytes) -> None:
    with contextlib.suppress(Unauthenticated):
        assert bearer_of(value).isascii()


async def test_two_headers_are_no_proof() -> None:
    gate = gate_of(Anybody())
    with pytest.raises(Unauthenticated):
        await _admit(gate, "Bearer ann", "Bearer ben")


async def test_two_headers_at_a_door() -> None:
    async with guarded_door() as door:
        headers = [("Authorization", door.as_(name)["Authorization"]) for name in ("nothing", "reader")]
        for first, second in (headers, headers[::-1]):
            problem(await door.http.get(f"{ROWS}/UA,1", headers=[first, second]), 401, "unauthenticated")


@pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])
async def test_nobody_is_read_further_than_the_head(query: str) -> None:
    """The answer comes before a byte of the body has left the client."""
    async with guarded_door() as door:
        for token, status in (("", b"401"), (door.tokens["reader"], b"403")):
            reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
            known = f"authorization: Bearer {token}\r\n" if token else ""
            writer.write(f"PUT {ROWS}/UA,1{query} HTTP/1.1\r\nhost: localhost\r\n{known}content-length: 9\r\n\r\n".encode())
            assert (await reader.readline()).split()[1] == status
            writer.close()


# ---- revoked, added, over
async def test_a_token_that_is_revoked_is_refused_on_an_open_connection() -> None:
    async with guarded_door() as door:
        url = f"{ROWS}/UA,1"
        for _ in range(2):
            assert (await door.http.put(url, json={}, headers=door.as_("writer"))).status_code == 200
        made = new_token()
        with changing(door.file) as (tokens, store):
            store(with_token(without_token(tokens, "writer"), "late", made, ["writer:flights"], NOW, NOW + timedelta(hours=1)))
        assert door.gate is not None
        await door.gate.refresh()
        problem(await door.http.put(url, json={}, headers=door.as_("writer")), 401, "unauthenticated")
        late = {"Authorization": f"Bearer {made}"}
        for _ in range(2):
            assert (await door.http.put(url, json={}, headers=late)).status_code == 200
        door.clock.s += 3601
        problem(await door.http.put(url, json={}, headers=late), 401, "unauthenticated")


# ---- the hot path
async def test_what_is_known_and_granted_takes_the_hot_path(monkeypatch: pytest.MonkeyPatch) -> None:
    hot = []
    begin = HotProtocol._begin_hot

    def noted(self: HotProtocol, *given: Any) -> None:
        hot.append(given[0].method)
        begin(self, *given)

    monkeypatch.setattr(HotProtocol, "_begin_hot", noted)
    async with guarded_door() as door:
        url = f"{ROWS}/UA,1"
        await door.http.put(url, json={})
        await door.http.put(url, json={}, headers=door.as_("reader"))
        await door.http.put(url, json={}, headers=door.as_("reader"))
        await door.http.put(url, json={}, headers=door.as_("elsewhere"))
        assert hot == []
        await door.http.put(url, json={}, headers=door.as_("writer"))  # proven the plain way
        assert hot == []
        await door.http.put(url, json={}, headers=door.as_("writer"))
        await door.http.get(url, headers=door.as_("reader"))
        assert hot == ["PUT", "GET"]


@given(st.sampled_from(["orders", "ordersx", "order", "or%64ers", "orders%00", "%6Frders", "flights"]), st.booleans())
def test_the_hot_path_judges_as_the_plain_way(table: str, is_write: bool) -> None:
    async def judged() -> None:
        gate = gate_of(Anybody())
        await _admit(gate, "Bearer ann")
        hot = gate.hot(b"Bearer ann", (), is_write, table.encode()) is not None
        assert hot == GRANTS.on("writer" if is_write else "reader", unquote(table))

    asyncio.run(judged())


async def test_a_certificate_takes_the_hot_path_too() -> None:
    clock = Clock()
    certificates = Certificates({"cn:ann": "reader:*"})
    gate = Gate([certificates], LimitSettings(), wall_s=clock, now_s=clock)
    scope = {**scope_of(), "extensions": {"tls": {"client_cert_chain": [pem("ann")]}}}
    assert gate.hot(None, certificates_of(scope), False, b"flights") is None, "not proven yet"
    assert await gate.admit(scope, IDENTITY, "/v1/cluster", "") is not None
    assert gate.hot(None, certificates_of(scope), False, b"flights") is not None
    assert gate.hot(None, certificates_of(scope), True, b"flights") is None
    assert gate.hot(None, (), False, b"flights") is None
    clock.s += 86_401
    assert gate.hot(None, certificates_of(scope), False, b"flights") is None, "it ended, and its connection did not"
    other = {**scope, "extensions": {"tls": {"client_cert_chain": [pem("ben")]}}}
    assert gate.hot(None, certificates_of(other), False, b"flights") is None


# ---- existence
@pytest.mark.parametrize("query", ["", "?versions=number"], ids=["hot", "plain"])
async def test_a_refusal_is_the_same_whether_there_is_such_a_table(query: str) -> None:
    async with guarded_door() as door:
        await door.http.post("/v1/tables", headers=door.as_("admin"), json={
            "name": "hidden", "columns": [{"name": "k", "type": "string"}], "primary_key": ["k"],
        })
        for method in ("GET", "PUT", "PATCH", "DELETE"):
            there, none = [
                await door.http.request(method, f"/v1/tables/{table}/rows/UA,1{query}", headers=door.as_("elsewhere"), json={})
                for table in ("hidden", "nohere")
            ]
            assert there.status_code == none.status_code == 403
            assert there.text.replace("hidden", "nohere") == none.text
            assert {name for name in there.headers if name != "date"} == {name for name in none.headers if name != "date"}


async def test_a_list_shows_what_the_caller_may_know() -> None:
    async with guarded_door() as door:
        body = {"name": "orders", "columns": [{"name": "k", "type": "string"}], "primary_key": ["k"]}
        assert (await door.http.post("/v1/tables", headers=door.as_("elsewhere"), json=body)).status_code == 201

        async def names(who: str, query: str = "") -> list[str]:
            shown = (await door.http.get(f"/v1/tables{query}", headers=door.as_(who))).json()
            return [table["name"] for table in shown["dropped" if query else "tables"]]

        assert await names("reader") == ["flights", "orders"]
        assert await names("elsewhere") == ["orders"]
        await door.http.delete("/v1/tables/flights", headers=door.as_("admin"))
        await door.http.delete("/v1/tables/orders", headers=door.as_("elsewhere"))
        assert await names("elsewhere", "?dropped=true") == ["orders"]
        kept = (await door.http.get("/v1/tables?dropped=true", headers=door.as_("reader"))).json()["dropped"]
        for table in kept:
            url = f"/v1/tables/{table['kept_as'].replace('~', '%7E')}:restore"
            wanted = 200 if table["name"] == "orders" else 403
            assert (await door.http.post(url, headers=door.as_("elsewhere"))).status_code == wanted


async def test_a_body_that_names_another_table_makes_none() -> None:
    async with guarded_door() as door:
        body = {"name": "others", "columns": [{"name": "k", "type": "string"}], "primary_key": ["k"]}
        refused_one = await door.http.post("/v1/tables", headers=door.as_("elsewhere"), json=body)
        problem(refused_one, 403, "missing-grant", grant="admin:others", outcome="not_applied")
        for name in (None, 7, ["orders"]):
            answer = await door.http.post("/v1/tables", headers=door.as_("elsewhere"), json={**body, "name": name})
            assert answer.status_code == 422


# ---- what is said
async def test_a_refusal_is_logged_with_who_and_where_and_without_the_token() -> None:
    structlog.reset_defaults()
    gate = gate_of(Anybody())
    with capture_logs() as logged, pytest.raises(Unauthenticated):
        await _admit(gate, "Bearer no-such-secret")
    (said,) = logged
    assert (said["why"], said["address"], said["path"]) == ("it begins with no", "192.0.2.7", "/v1/cluster")
    assert "no-such-secret" not in repr(logged)


async def test_a_flood_of_refusals_does_not_fill_the_log() -> None:
    structlog.reset_defaults()
    gate = gate_of(Anybody())
    with capture_logs() as logged:
        for number in range(1000):
            with pytest.raises(Unauthenticated):
                await _admit(gate, f"Bearer no{number}")
    assert len(logged) == 20
    assert not gate._known, "what was refused is not kept"


async def test_the_history_names_the_identity(door: GuardedDoor) -> None:
    body = {"kind": "switchover", "to": "b"}
    answer = await door.http.post("/v1/operations", json=body, headers={**door.as_("operator"), "Twinlog-Actor": "root@db"})
    assert answer.json()["actor"] == "token operator, as root@db (127.0.0.1)"
