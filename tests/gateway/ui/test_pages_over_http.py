"""The pages through a door: headers, forms, log-in, what a caller without a right sees, and errors."""

from __future__ import annotations

import re

import httpx
import pytest
from msgspec.structs import replace

from gateway.access.token_file import changing
from gateway.access.tokens import without_token
from gateway.api.examples import NEW_AUDIT
from gateway.ui.rendering import ASSETS
from switchover.preflight.preflight import ChecksDocument
from tests.gateway.access.rig import GuardedDoor, guarded_door
from tests.gateway.audits.test_audits_over_http import AUDIT, PROGRESS, REPORT
from tests.gateway.dict_service import DictService
from tests.gateway.door_client import FLIGHTS, DoorClient
from tests.gateway.ui.ui_rig import look, text_of
from twinlog.errors import PeerError

HTML = {"accept": "text/html"}
AUDITED = (
    ("POST", "/v1/audits", AUDIT), ("PUT", "/v1/audits/1-compare/report", REPORT),
    ("PUT", "/v1/audits/2-compare/progress", PROGRESS),
)
VIEWS = (
    "/ui", "/ui/change", "/ui/change?kind=switchover", "/ui/history", "/ui/tables", "/ui/tables/flights", "/ui/audits",
    "/ui/log",
)


def _lively(service: DictService) -> None:
    service.looks.cluster = look().cluster
    service.looks.other = look("b", "STANDBY")


def form_of(answer: httpx.Response) -> str:
    found = re.search(r'name="form" value="([0-9a-f]{64})"', answer.text)
    assert found is not None
    return found[1]


@pytest.mark.parametrize("path", [*VIEWS, "/ui/audits/1-compare", "/ui/audits/2-compare"])
async def test_each_view_and_its_policy(served: DoorClient, path: str) -> None:
    _lively(served.service)
    for method, there, body in AUDITED:
        assert (await served.http.request(method, there, json=body)).is_success
    answer = await served.http.get(path, headers=HTML)
    assert answer.status_code == 200, answer.text
    policy = answer.headers["content-security-policy"]
    assert "unsafe" not in policy
    assert "default-src 'none'" in policy
    assert answer.headers["cache-control"] == "no-store"
    assert not re.search(r"<[^>]*\s(style|on\w+)=", answer.text)
    assert not re.search(r"<script(?![^>]*\ssrc=)", answer.text)
    for address in re.findall(r'(?:src|href)="([^"]*)"', answer.text):
        assert address.startswith(("/", "#")) or address == "" or address.endswith("/ui") or "/ui/change?kind" in address
    assert (await served.http.head(path)).status_code == 200


async def test_views_while_the_other_site_is_away(served: DoorClient) -> None:
    served.service.looks.cluster = look().cluster
    for path in VIEWS:
        answer = await served.http.get(path, headers=HTML)
        assert answer.status_code in (200, 409), path
    text = text_of((await served.http.get("/ui/history", headers=HTML)).text)
    assert "site b does not answer, and what it keeps is not in this list" in text
    assert "its logs are not known: site b does not answer" in text_of((await served.http.get("/ui/log", headers=HTML)).text)


async def test_files_are_kept_for_ever_by_their_address(served: DoorClient) -> None:
    page = (await served.http.get("/ui", headers=HTML)).text
    for name in ASSETS:
        address = re.search(rf'"(/ui/static/{re.escape(name)}\?v=[0-9a-f]+)"', page)
        assert address is not None
        answer = await served.http.get(address[1])
        assert "immutable" in answer.headers["cache-control"]
        assert answer.headers["content-type"] == ASSETS[name]
    assert (await served.http.get("/ui/static/pages.py")).status_code == 404


async def test_rows_of_a_table_with_anything_in_them(served: DoorClient) -> None:
    _lively(served.service)
    await served.put("UA,1", {"note": "<b>\u202eevil\x07</b>", "delay": 2.5})
    page = await served.http.get("/ui/tables/flights?start=UA", headers=HTML)
    assert "&lt;b&gt;\\u202eevil\\u0007&lt;/b&gt;" in page.text
    assert "There is no row from here on" in (await served.http.get("/ui/tables/flights?start=ZZ", headers=HTML)).text
    assert (await served.http.get("/ui/tables/none", headers=HTML)).status_code == 404
    found = await served.http.get("/ui/tables?name=nothing", headers=HTML)
    assert "No table has a name with this in it" in found.text


async def test_how_tables_stand_at_the_other_site(served: DoorClient) -> None:
    looks = served.service.looks
    _lively(served.service)
    await served.http.post("/v1/tables", json={**FLIGHTS, "name": "planes"})
    await served.put("UA,1", {"note": "x"})
    looks.held_revisions = {"planes": None}
    listed = text_of((await served.http.get("/ui/tables", headers=HTML)).text)
    assert "flights 1 20 bytes 1 site b has the same no run is known here" in listed
    assert "planes 0 0 bytes 1 i site b does not have the table" in listed
    looks.is_loading = True
    for path in ("/ui/tables", "/ui/tables/flights"):
        assert "base data of site b is on its way" in text_of((await served.http.get(path, headers=HTML)).text)


async def test_what_is_shown_of_a_silent_site_is_called_old(served: DoorClient) -> None:
    looks = served.service.looks
    silent = looks.other = PeerError("site b does not answer", sent=True)

    async def shown(path: str) -> str:
        return text_of((await served.http.get(path, headers=HTML)).text)

    assert "! Site b does not answer. Which schemas site b has is unknown." in await shown("/ui/tables")
    assert "revision 1 here; unknown (site b does not answer)" in await shown("/ui/tables/flights")
    _lively(served.service)
    for path in ("/ui/tables", "/ui/tables/flights"):
        assert "does not answer" not in await shown(path)
    looks.other = silent
    said = "! Site b does not answer. What this page shows of site b is from a moment ago."
    listed, one = await shown("/ui/tables"), await shown("/ui/tables/flights")
    assert said in listed
    assert "site b has the same" in listed
    assert said in one
    assert "both sites have revision 1" in one


async def test_the_last_comparison_is_shown_to_whoever_may_see_audits(served: DoorClient) -> None:
    assert (await served.http.post("/v1/audits", json=NEW_AUDIT)).status_code < 300
    async with guarded_door() as door:
        assert (await door.http.post("/v1/audits", json=NEW_AUDIT, headers=door.as_("auditor"))).status_code < 300
        for path in ("/ui/tables", "/ui/tables/flights"):
            assert "equal at 2013-01-01 05:01:00" in (await served.http.get(path, headers=HTML)).text
            page = (await door.http.get(path, headers={**HTML, **door.as_("reader")})).text
            assert "2013" not in page
            assert "ompared" not in page


async def test_rows_of_a_standby_say_how_old_they_are(served: DoorClient) -> None:
    await served.put("UA,1", {"note": "x"})
    served.service.role_now = "STANDBY"
    served.service.now_s = 102.5
    page = text_of((await served.http.get("/ui/tables/flights", headers=HTML)).text)
    assert "this site is the standby: they may be behind by up to 2.5 s" in page


# ---- forms
async def _form(door: DoorClient, path: str = "/ui/change?kind=failover") -> str:
    return form_of(await door.http.get(path, headers=HTML))


async def test_a_change_begins_with_what_confirms_it_typed_once_for_each_page(served: DoorClient) -> None:
    service = served.service
    service.looks.cluster = look("b", "STANDBY").cluster
    service.site = "b"
    _lively(service)
    service.looks.cluster = replace(look().cluster, site="a")
    form = await _form(served, "/ui/change?kind=degrade")
    fields = {"form": form, "kind": "degrade", "to": "", "key": "k1", "do": "start", "reason": "drill"}
    refused = await served.http.post("/ui/change", data={**fields, "typed": "degrad"}, headers=HTML)
    assert refused.status_code == 409
    assert "to confirm, type degrade" in text_of(refused.text)
    assert service.operations.documents == {}
    begun = await served.http.post("/ui/change", data={**fields, "typed": " degrade "}, headers=HTML)
    assert (begun.status_code, begun.headers["location"]) == (303, "/ui/change?operation=op-1")
    assert service.operations.documents["op-1"].options == {"reason": "drill"}
    shown = await served.http.get(begun.headers["location"], headers=HTML)
    assert shown.status_code == 200


async def test_a_dry_run_changes_nothing(served: DoorClient) -> None:
    _lively(served.service)
    form = await _form(served, "/ui/change?kind=degrade")
    answer = await served.http.post("/ui/change", data={"form": form, "kind": "degrade", "to": "", "do": "dry"}, headers=HTML)
    assert answer.status_code == 303
    assert served.service.operations.documents == {}


async def test_a_form_of_another_page_is_refused(served: DoorClient) -> None:
    _lively(served.service)
    form = await _form(served, "/ui/change?kind=degrade")
    good = {"form": form, "kind": "degrade", "to": "", "do": "start", "typed": "degrade", "key": "k"}
    for wrong in ({**good, "form": ""}, {**good, "form": "0" * 64}, {name: good[name] for name in good if name != "form"}):
        assert (await served.http.post("/ui/change", data=wrong, headers=HTML)).status_code == 403
    cookies = dict(served.http.cookies)
    served.http.cookies.clear()
    assert (await served.http.post("/ui/change", data=good, headers=HTML)).status_code == 403
    served.http.cookies.update(cookies)
    foreign = {**HTML, "origin": "http://evil.example"}
    assert (await served.http.post("/ui/change", data=good, headers=foreign)).status_code == 403
    as_json = await served.http.post("/ui/change", json=good, headers=HTML)
    assert as_json.status_code == 415
    assert served.service.operations.documents == {}


async def test_the_pair_changed_since_the_page_was_loaded(served: DoorClient) -> None:
    _lively(served.service)
    form = await _form(served, "/ui/change?kind=degrade")
    wrong = {"form": form, "kind": "degrade", "to": "b", "do": "start", "typed": "degrade"}
    answer = await served.http.post("/ui/change", data=wrong, headers=HTML)
    assert answer.status_code == 409
    assert served.service.operations.documents == {}


async def test_an_operation_is_given_up_and_resumed(served: DoorClient) -> None:
    _lively(served.service)
    await served.service.operations.start("degrade", None, {}, False, "anna")
    form = await _form(served, "/ui/change?operation=op-1&act=abort")
    for act, state in (("abort op-1", "aborted"), ("resume op-1", "running")):
        answer = await served.http.post("/ui/operation", data={"form": form, "act": act}, headers=HTML)
        assert (answer.status_code, served.service.operations.documents["op-1"].state) == (303, state)
    assert (await served.http.post("/ui/operation", data={"form": form, "act": "burn op-1"}, headers=HTML)).status_code == 422


async def test_checks_that_fail_are_on_the_page(served: DoorClient, monkeypatch: pytest.MonkeyPatch) -> None:
    _lively(served.service)

    async def refused(kind: str) -> ChecksDocument:
        return ChecksDocument(kind, "b", False, [], None)

    monkeypatch.setattr(served.service.looks, "other_checks", refused)
    page = text_of((await served.http.get("/ui/change?kind=switchover", headers=HTML)).text)
    assert "it would be refused now" in page
    assert "Continue at the page of site b" in page


# ---- who asks
async def _logged_in(door: GuardedDoor, name: str, next_path: str = "/ui") -> httpx.Response:
    door.http.cookies.clear()  # whoever is logged in sees no form
    page = await door.http.get("/ui/login", headers=HTML)
    return await door.http.post(
        "/ui/login", data={"form": form_of(page), "token": door.tokens[name], "next": next_path}, headers=HTML
    )


async def test_whoever_is_not_known_is_led_to_the_log_in_and_back() -> None:
    async with guarded_door() as door:
        _lively(door.service)
        answer = await door.http.get("/ui/history?x=1", headers=HTML)
        assert answer.status_code == 303
        assert answer.headers["location"] == "/ui/login?next=%2Fui%2Fhistory%3Fx%3D1"
        assert (await door.http.get("/ui/history")).status_code == 401  # no browser
        entered = await _logged_in(door, "operator", "/ui/history")
        assert (entered.status_code, entered.headers["location"]) == (303, "/ui/history")
        cookie = entered.headers["set-cookie"]
        assert door.tokens["operator"] not in cookie
        assert "HttpOnly" in cookie
        assert "SameSite=Strict" in cookie
        assert (await door.http.get("/ui/history", headers=HTML)).status_code == 200
        assert (await door.http.get("/v1/operations")).status_code == 401  # the cookie is for the page alone


async def test_whoever_is_logged_in_already_is_led_on_from_the_log_in() -> None:
    async with guarded_door() as door:
        _lively(door.service)
        asked = "/ui/login?next=/ui/history"
        assert (await door.http.get(asked, headers=HTML)).status_code == 200
        await _logged_in(door, "operator")
        led = [(await door.http.get(path, headers=HTML)) for path in (asked, "/ui/login", "/ui/login?next=//evil.example")]
        assert [(one.status_code, one.headers["location"]) for one in led] == [(303, "/ui/history"), (303, "/ui"), (303, "/ui")]
        with changing(door.file) as (tokens, store):
            store(without_token(tokens, "operator"))
        await door.gate.refresh()
        assert (await door.http.get(asked, headers=HTML)).status_code == 200, "a session that counts no more leads nowhere"


async def test_where_nobody_has_to_log_in_the_log_in_leads_on(served: DoorClient) -> None:
    answer = await served.http.get("/ui/login?next=/ui/history", headers=HTML)
    assert (answer.status_code, answer.headers["location"]) == (303, "/ui/history")


LINK = {**HTML, "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}


@pytest.mark.parametrize("path", ["/ui/history?x=1", "/ui", "/ui/audits/1-compare", "/ui/login?next=/ui/log"])
async def test_a_link_of_another_site_costs_nobody_a_session(served: DoorClient, path: str) -> None:
    """The browser keeps a Strict cookie back then: an answer with a new one would log people out."""
    async with guarded_door() as door:
        for http, service in ((served.http, served.service), (door.http, door.service)):
            _lively(service)
            answer = await http.get(path, headers=LINK)
            assert answer.status_code == 200
            assert "set-cookie" not in answer.headers
            assert f'content="0; url={path if "login" not in path else "/ui"}"' in answer.text
        assert (await _logged_in(door, "operator", "/ui/history")).status_code == 303
        shown = await door.http.get(path, headers=LINK)
        assert "A link led here" not in shown.text, "a browser that shows its cookie is led nowhere"


async def test_a_wrong_token_is_not_taken_and_the_log_in_leads_nowhere_else() -> None:
    async with guarded_door() as door:
        page = await door.http.get("/ui/login", headers=HTML)
        for token in ("", "wrong", "x" * 100_000):
            answer = await door.http.post("/ui/login", data={"form": form_of(page), "token": token}, headers=HTML)
            assert answer.status_code in (401, 413, 422), token[:10]
        for there in ("https://evil.example/ui", "//evil.example", "/ui\\..", "/v1/cluster", "/uix"):
            assert (await _logged_in(door, "reader", there)).headers["location"] == "/ui"


async def test_a_page_shows_what_the_role_may_do() -> None:
    async with guarded_door() as door:
        _lively(door.service)
        await _logged_in(door, "reader")
        page = await door.http.get("/ui", headers=HTML)
        assert page.status_code == 200
        assert re.findall(r'<a href="(/ui[^"]*)"', page.text)[:2] == ["/ui", "/ui/tables"]
        assert "writes a second" not in page.text
        refused = await door.http.get("/ui/change", headers=HTML)
        assert refused.status_code == 403
        assert "operator" in text_of(refused.text)
        await _logged_in(door, "auditor")
        shown = await door.http.get("/ui/change?kind=degrade", headers=HTML)
        assert "Beginning it needs the grant" in text_of(shown.text)
        assert 'name="typed"' not in shown.text
        fields = {"form": form_of(shown), "kind": "degrade", "to": "", "do": "start", "typed": "degrade"}
        assert (await door.http.post("/ui/change", data=fields, headers=HTML)).status_code == 403
        assert door.service.operations.documents == {}


async def test_a_log_out_and_a_revoked_token_end_the_session() -> None:
    async with guarded_door() as door:
        _lively(door.service)
        await _logged_in(door, "operator")
        page = await door.http.get("/ui", headers=HTML)
        left = await door.http.post("/ui/logout", data={"form": form_of(page)}, headers=HTML)
        assert left.status_code == 303
        assert (await door.http.get("/ui", headers=HTML)).status_code == 303
        await _logged_in(door, "operator")
        assert (await door.http.get("/ui", headers=HTML)).status_code == 200
        with changing(door.file) as (tokens, store):
            store(without_token(tokens, "operator"))
        await door.gate.refresh()
        assert (await door.http.get("/ui", headers=HTML)).status_code == 303


async def test_whoever_may_not_read_a_table_sees_its_columns_and_no_row() -> None:
    async with guarded_door() as door:
        await door.http.put("/v1/tables/flights/rows/UA,1", json={"note": "a secret"}, headers=door.as_("writer"))
        for name, is_shown in (("writer", False), ("admin", False), ("reader", True)):
            page = await door.http.get("/ui/tables/flights", headers={**HTML, **door.as_(name)})
            assert page.status_code == 200
            assert "carrier" in page.text
            assert ("a secret" in page.text) is is_shown, name
            size = "not granted to you" if name == "writer" else "of keys and values (counted now)"
            assert size in text_of(page.text), name
            listed = text_of((await door.http.get("/ui/tables", headers={**HTML, **door.as_(name)})).text)
            assert ("not granted to you" in listed) is (name == "writer"), name


async def test_a_stream_shows_what_its_page_would_and_ends_with_the_session() -> None:
    async with guarded_door() as door:
        _lively(door.service)
        assert (await door.http.get("/ui/events?view=now")).status_code == 401
        assert (await door.http.get("/ui/events?view=change", headers=door.as_("reader"))).status_code == 404
        assert (await door.http.get("/ui/events?view=nothing", headers=door.as_("operator"))).status_code == 422
        await _logged_in(door, "reader")
        number = door.app.context.pages.sessions.number_of([(b"cookie", _cookies(door))])  # type: ignore[union-attr]
        async with door.http.stream("GET", "/ui/events?view=now") as stream:
            lines = stream.aiter_lines()
            first = next_data = ""
            async for line in lines:
                if line.startswith("data: "):
                    first = line
                    break
            assert "verdict" in first
            assert "writes a second" not in first
            door.app.context.pages.sessions.end(number)  # type: ignore[union-attr]
            async for line in lines:
                next_data += line
            assert len(next_data) < len(first)


def _cookies(door: GuardedDoor) -> bytes:
    return "; ".join(f"{name}={value}" for name, value in door.http.cookies.items()).encode()
