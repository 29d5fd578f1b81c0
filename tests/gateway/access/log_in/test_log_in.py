"""The log-in by an issuer, from the page to the provider's twin and back: who gets in, and everybody who does not."""

from __future__ import annotations

import contextlib
from dataclasses import replace
from pathlib import Path
from urllib.parse import quote

import pytest
import structlog

from gateway.access.log_in.log_in import OF_ALL
from gateway.access.log_in.provider import ASKED_S
from gateway.access.oidc import LEEWAY_S
from gateway.access.opening import apply
from gateway.access.settings import AccessSettings
from tests.gateway.access.log_in.log_in_rig import LogInDoor, is_in, log_in_door, oidc_settings, refused, said
from tests.gateway.access.log_in.provider_twin import CLIENT, OTHER_KEY, SECRET, Provider
from tests.gateway.access.rig import guarded_door
from tests.gateway.trail.trail_rig import stored
from tests.gateway.ui.test_pages_over_http import form_of
from twinlog.errors import Overloaded


async def test_somebody_logs_in_and_sees_what_is_granted(provider: Provider, door: LogInDoor) -> None:
    page = await door.browser.get("/ui/login?next=/ui/tables")
    assert f"Log in at {provider.url.removeprefix('http://')}" in said(page)
    answer = await door.browser.log_in("ann", "/ui/tables")
    assert answer.status_code == 200
    assert "You are logged in as ann" in said(answer)
    assert 'content="0; url=/ui/tables"' in answer.text
    assert await is_in(door)
    assert (await door.browser.get("/ui/tables/flights")).status_code == 200
    assert (await door.browser.get("/ui/change")).status_code == 403
    assert (await door.browser.http.get("/v1/cluster")).status_code == 401, "the session is of the page alone"


async def test_a_log_out_ends_it(door: LogInDoor) -> None:
    await door.browser.log_in()
    page = await door.browser.get("/ui")
    known = len(door.log_in._known)
    left = await door.browser.http.post("/ui/logout", data={"form": form_of(page)}, headers={"accept": "text/html"})
    assert left.status_code == 303
    assert not await is_in(door)
    assert (known, len(door.log_in._known)) == (1, 0)


# ---- what is refused
async def test_an_answer_without_a_log_in_under_way(door: LogInDoor) -> None:
    async with door.another_browser() as other:
        asked = await other.begin()
        answer = await door.browser.get(other.sent_back(asked, "ann"))
    await refused(door, answer, 401, "has no log-in under way", "shows no log-in", taken=False)


async def test_an_answer_of_another_browsers_log_in(door: LogInDoor) -> None:
    """Somebody sends a victim the answer to a log-in of his own, so that the victim works as him."""
    async with door.another_browser() as other:
        asked = await other.begin()
        await door.browser.begin()
        answer = await door.browser.get(other.sent_back(asked, "eve"))
    await refused(door, answer, 401, "this answer is of another log-in", "the state is not that", taken=False)
    assert "/token" not in door.browser.provider.asked


async def test_the_newest_of_two_tabs_logs_in_whatever_the_older_one_does(door: LogInDoor) -> None:
    older, newer = await door.browser.begin(), await door.browser.begin("/ui/tables")
    answer = await door.browser.get(door.browser.sent_back(older, "ann"))
    await refused(door, answer, 401, "continue in the tab of that one", taken=False)
    answer = await door.browser.get(door.browser.sent_back(newer, "ann"))
    assert answer.status_code == 200
    assert 'content="0; url=/ui/tables"' in answer.text
    assert await is_in(door)


async def test_an_answer_counts_once(door: LogInDoor) -> None:
    asked = await door.browser.begin()
    cookies = dict(door.browser.http.cookies)
    first = await door.browser.get(door.browser.sent_back(asked, "ann"))
    assert first.status_code == 200
    door.browser.http.cookies.clear()
    for name, value in cookies.items():
        door.browser.http.cookies.set(name, value)
    again = await door.browser.get(door.browser.sent_back(asked, "ann"))
    await refused(door, again, 401, "was used before", "the state was used before", taken=False)


@pytest.mark.parametrize("path", ["/ui/login/callback?state=x&code=y", "/ui/login/oidc"])
async def test_a_link_of_another_site_to_the_log_in_costs_nobody_a_session(door: LogInDoor, path: str) -> None:
    """The browser keeps its session's cookie back, and must not get another one."""
    link = {"accept": "text/html", "sec-fetch-site": "cross-site", "sec-fetch-mode": "navigate"}
    async with door.another_browser() as other:
        answer = await other.http.get(path, headers=link)
    set_cookies = answer.headers.get_list("set-cookie")
    assert "Log in" in answer.text
    assert [one for one in set_cookies if "_login=" not in one] == []


async def test_a_log_in_ends_after_ten_minutes(door: LogInDoor) -> None:
    asked = await door.browser.begin()
    door.clock.ahead_s += 602
    answer = await door.browser.get(door.browser.sent_back(asked, "ann"))
    await refused(door, answer, 401, "took longer than ten minutes", "the seal of the log-in does not open", taken=False)


async def test_a_code_without_the_verifier_is_worth_nothing(door: LogInDoor) -> None:
    """A code that was caught on its way, put into the answer to a log-in of the catcher's own."""
    asked = await door.browser.begin()
    caught = door.browser.sent_back(asked, "ann").partition("code=")[2]
    async with door.another_browser() as catcher:
        own = await catcher.begin()
        answer = await catcher.get(f"/ui/login/callback?state={own['state']}&code={caught}")
    await refused(door, answer, 401, "does not take this log-in any more", "'invalid_grant'")


async def test_the_verifier_reaches_the_provider_with_the_code_alone(door: LogInDoor) -> None:
    asked = await door.browser.begin()
    assert asked["code_challenge_method"] == "S256"
    assert len(asked["code_challenge"]) == 43
    assert "code_verifier" not in asked
    assert asked["redirect_uri"] == "https://gateway-a.example/ui/login/callback"
    texts = {asked["state"], asked["nonce"], (await door.browser.begin())["state"]}
    assert len(texts) == 3
    assert min(map(len, texts)) >= 43


async def test_an_id_token_of_another_log_in(provider: Provider, door: LogInDoor) -> None:
    """A provider that binds codes to nothing: then the nonce alone says whose log-in an ID token is of."""
    provider.is_careless = True
    async with door.another_browser() as victim:
        asked = await victim.begin()
        caught = victim.sent_back(asked, "ann").partition("code=")[2]
    own = await door.browser.begin()
    answer = await door.browser.get(f"/ui/login/callback?state={own['state']}&code={caught}")
    await refused(door, answer, 401, "is of another log-in", "for 'ann' has not the nonce")


@pytest.mark.parametrize(("claims", "words", "why"), [
    ({"aud": "other"}, "not valid here", "Audience"),
    ({"aud": "twinlog-shop"}, "not valid here", "for 'twinlog-shop'"),  # the audience of bearer tokens is no client
    ({"aud": ["twinlog-page", "other"]}, "for another client", "for another client"),
    ({"aud": ["twinlog-page", "other"], "azp": "other"}, "for another client", "for another client"),
    ({"azp": "other"}, "for another client", "for another client"),
    ({"iss": "https://evil.example"}, "not valid here", "it is of 'https://evil.example'"),
    ({"nonce": None}, "of another log-in", "has not the nonce"),
    ({"nonce": 7}, "of another log-in", "has not the nonce"),
    ({"nonce": "x"}, "of another log-in", "has not the nonce"),
    ({"exp": 1_700_000_000}, "the clocks of the two differ", "expired"),
    ({"iat": 4_000_000_000}, "the clocks of the two differ", "not yet valid"),
    ({"exp": None}, "not valid here", "exp"),
    ({"sub": None}, "not valid here", "sub"),
    ({"sub": "a\x1b[2J"}, "not valid here", "the claim 'sub'"),
])
async def test_an_id_token_that_does_not_hold(
    provider: Provider, door: LogInDoor, claims: dict[str, object], words: str, why: str,
) -> None:
    provider.claims = claims
    answer = await door.browser.log_in()
    await refused(door, answer, 401, words, why)
    assert "says of you is" in said(answer), "it is refused before it becomes anything at the gate"


@pytest.mark.parametrize("how", ["another key", "a shared secret", "none"])
async def test_an_id_token_that_the_issuer_did_not_sign(provider: Provider, door: LogInDoor, how: str) -> None:
    provider.key, provider.algorithm = {
        "another key": (OTHER_KEY, "RS256"), "a shared secret": (SECRET * 3, "HS256"), "none": (None, "none"),
    }[how]
    why = "Signature" if how == "another key" else "never taken"
    await refused(door, await door.browser.log_in(), 401, "not valid here", why)


async def test_somebody_who_declines_at_the_provider(door: LogInDoor) -> None:
    answer = await door.browser.log_in("", "/ui/tables")
    await refused(door, answer, 401, "you declined there", "access_denied")
    assert "next=%2Fui%2Ftables" in answer.text
    assert "said" not in said(answer), "the provider's text is not shown"


@pytest.mark.parametrize(("answer", "status", "words"), [
    ("state={state}&error=server_error", 401, "did not complete the log-in"),
    ("state={state}&error=%0a%1b[2J", 401, "did not complete the log-in"),
    ("state={state}", 401, "sent no code"),
    ("state={state}&code=", 401, "sent no code"),
    ("state={state}&code=x&iss=https://evil.example", 401, "this answer is not of"),
    ("state={state}&code=x&code=y", 422, "more than once"),
    ("state={state}&code=" + "x" * 9000, 422, "cannot be read"),
    ("state={state}&code=%ff", 422, "cannot be read"),
    ("state={state}&" + "&".join(f"a{n}=1" for n in range(30)), 422, "cannot be read"),
    ("", 401, "another log-in"),
    ("state=%c3%a9&code=x", 401, "another log-in"),
])
async def test_an_answer_that_is_none(door: LogInDoor, answer: str, status: int, words: str) -> None:
    asked = await door.browser.begin()
    got = await door.browser.get(f"/ui/login/callback?{answer.format(state=asked['state'])}")
    await refused(door, got, status, words, taken=status == 401 and asked["state"] in str(got.url))
    assert "/token" not in door.browser.provider.asked


async def test_somebody_to_whom_nothing_is_granted(door: LogInDoor) -> None:
    answer = await door.browser.log_in("eve")
    await refused(door, answer, 403, "knows you as eve, and nothing is granted to you here")
    line = (await door.lines("request.refused"))[0]
    assert (line.who.name, line.who.kind) == ("eve", "oidc")
    assert door.log_in.name in line.what["why"]
    assert not door.log_in._known


@pytest.mark.parametrize(("groups", "words"), [
    (None, "the token has no claim 'groups'"), ([], "the claim 'groups' has no text"), ({"dba": 1}, "has no text"),
    (["/dba"], "the claim 'groups' has '/dba', and none of these is in"), (["\x1b[2J<b>"], "has '\\x1b[2J<b>'"),
    ([f"g{number}" for number in range(7)], "'g4' and 2 more, and none"), ("x" * 500, f"has '{'x' * 128}', and none"),
])
async def test_whoever_is_granted_nothing_reads_by_what(
    provider: Provider, door: LogInDoor, groups: object, words: str,
) -> None:
    provider.claims = {"groups": groups}
    await refused(door, await door.browser.log_in(), 403, words)


async def test_people_are_named_by_the_claim_that_the_configuration_says(provider: Provider, tmp_path: Path) -> None:
    provider.claims = {"sub": "5fb28ba5", "preferred_username": "ann"}
    async with log_in_door(provider, tmp_path, replace(oidc_settings(provider), name="preferred_username")) as door:
        assert "You are logged in as ann" in said(await door.browser.log_in())
        assert (await door.lines("session.login"))[0].who.name == "ann"
        provider.claims = {"preferred_username": None}
        async with door.another_browser() as other:
            assert "not valid here" in said(await other.log_in())


@pytest.mark.parametrize("url", ["", "http://id.example/logout", "javascript:alert(1)", None])
async def test_whoever_is_known_there_as_somebody_else_finds_the_way_out(
    provider: Provider, door: LogInDoor, url: str | None,
) -> None:
    there = f"{provider.url}/logout"
    provider.discovery = {"end_session_endpoint": there}
    answer = await door.browser.log_in("eve")
    assert 'href="/ui/login/oidc/leave?next=%2Fui"' in answer.text
    led = await door.browser.get("/ui/login/oidc/leave")
    assert (led.status_code, led.headers["location"]) == (303, f"{there}?client_id={CLIENT}")
    provider.discovery = {"end_session_endpoint": url}
    door.clock.ahead_s += ASKED_S
    assert "log out there" not in (await door.browser.log_in("eve")).text
    await refused(door, await door.browser.get("/ui/login/oidc/leave"), 404, "does not say where people log out", taken=False)


@pytest.mark.parametrize("when", ["before a log-in", "between the code and the token"])
async def test_nobody_is_led_to_a_provider_that_is_down(provider: Provider, door: LogInDoor, when: str) -> None:
    provider.discovery = {"end_session_endpoint": f"{provider.url}/logout"}
    asked = await door.browser.begin()
    assert "log out there" in (await door.browser.get("/ui/login")).text
    provider.discovery = {"issuer": "https://evil.example"}  # what answers there is not this issuer
    if when == "before a log-in":
        door.clock.ahead_s += ASKED_S
    else:
        provider.is_cutting = True
        answer = await door.browser.get(door.browser.sent_back(asked, "ann"))
        await refused(door, answer, 503, "so your log-in could not be completed: try again in a moment")
        assert "log out there" not in answer.text
    for path in ("/ui/login/oidc/leave", "/ui/login/oidc"):
        answer = await door.browser.get(path)
        await refused(door, answer, 503, "cannot be reached from this gateway now", taken=False)
        assert "log out there" not in answer.text
    assert "log out there" not in (await door.browser.get("/ui/login")).text
    provider.discovery, provider.is_cutting = {"end_session_endpoint": f"{provider.url}/logout"}, False
    door.clock.ahead_s += ASKED_S
    await door.log_in.refresh()
    assert "log out there" in (await door.browser.get("/ui/login")).text
    assert "You are logged in as ann" in said(await door.browser.log_in())


# ---- how long, and how much
async def test_a_session_ends_with_the_id_token(door: LogInDoor) -> None:
    await door.browser.log_in()
    door.clock.ahead_s += 300 + LEEWAY_S - 5
    assert await is_in(door)
    door.clock.ahead_s += 10
    assert not await is_in(door)


async def test_a_configured_session_may_last_longer_or_shorter(provider: Provider, tmp_path: Path) -> None:
    async with log_in_door(provider, tmp_path, oidc_settings(provider, session_s=900.0)) as door:
        await door.browser.log_in()
        door.clock.ahead_s += 890
        assert await is_in(door)
        door.clock.ahead_s += 20
        assert not await is_in(door)


async def test_grants_that_are_taken_back_count_at_once(provider: Provider, door: LogInDoor) -> None:
    await door.browser.log_in()
    assert (await door.browser.get("/ui/tables")).status_code == 200
    settings = AccessSettings(oidc=replace(oidc_settings(provider), grants={"ops": "operator"}))
    apply(door.gate, settings)
    assert (await door.browser.get("/ui/tables")).status_code == 403


async def test_an_id_token_is_no_bearer_token(provider: Provider, door: LogInDoor) -> None:
    await door.browser.log_in()
    answer = await door.browser.http.get("/v1/cluster", headers={"Authorization": f"Bearer {provider.id_tokens[0]}"})
    assert answer.status_code == 401


async def test_too_many_log_ins_of_an_address(door: LogInDoor) -> None:
    door.clock.stands_at_s = door.clock()
    answers = [await door.browser.get("/ui/login/oidc") for _ in range(6)]
    assert [answer.status_code for answer in answers] == [303] * 5 + [429]
    await refused(door, answers[-1], 429, "too many log-ins at a time", taken=False)
    assert (await door.browser.get("/ui/login/callback?code=x&state=x")).status_code == 429
    door.clock.stands_at_s += 1
    assert (await door.browser.get("/ui/login/oidc")).status_code == 303


async def test_log_ins_of_all_addresses_are_bounded_and_one_takes_no_share_of_another(door: LogInDoor) -> None:
    door.clock.stands_at_s = door.clock()
    with contextlib.ExitStack() as stack:
        for number in range(OF_ALL.concurrent):
            stack.enter_context(door.log_in.attempt(f"192.0.2.{number}"))
        with pytest.raises(Overloaded):
            stack.enter_context(door.log_in.attempt("192.0.2.200"))
    door.clock.stands_at_s += 1
    for _ in range(20):
        with contextlib.suppress(Overloaded), door.log_in.attempt("192.0.2.1"):
            pass
    with door.log_in.attempt("192.0.2.2"):
        pass


async def test_a_page_of_another_site_begins_no_log_in(door: LogInDoor) -> None:
    for site in ("cross-site", "same-site"):
        answer = await door.browser.get("/ui/login/oidc", **{"sec-fetch-site": site})
        assert answer.status_code == 200
        assert "_login=" not in str(answer.headers.get("set-cookie"))


@pytest.mark.parametrize("there", [
    "https://evil.example/ui", "//evil.example", "/ui\\..", "/v1/cluster", "/uix", "/ui/../v1", "/ui/login/callback?code=x",
    "/ui/tables/a/../..", "/ui/tables//evil.example", "/ui/logout", "javascript:alert(1)",
])
async def test_a_log_in_leads_to_a_view_alone(door: LogInDoor, there: str) -> None:
    answer = await door.browser.get(door.browser.sent_back(await door.browser.begin(quote(there)), "ann"))
    assert 'content="0; url=/ui"' in answer.text


# ---- what is left behind
async def test_the_trail_names_who_by_whom_and_no_secret_stands_anywhere(
    provider: Provider, door: LogInDoor, capfd: pytest.CaptureFixture[str],
) -> None:
    with structlog.testing.capture_logs() as logged:
        await door.browser.log_in()
        page = await door.browser.get("/ui")
        await door.browser.http.post("/ui/logout", data={"form": form_of(page)}, headers={"accept": "text/html"})
        provider.claims = {"aud": "other"}
        await door.browser.log_in("ben")
        provider.token_answer = (401, b'{"error": "invalid_client"}')
        await door.browser.log_in("ben")
    lines = await door.lines("session.login", "session.logout")
    assert [(line.event, line.who.name, line.who.kind, line.what) for line in lines] == [
        (event, "ann", "oidc", {"issuer": provider.url}) for event in ("session.login", "session.logout")
    ]
    assert any("Audience" in str(entry) for entry in logged)
    assert any("invalid_client" in str(entry) for entry in logged)
    everything = "\n".join([
        str(logged), *capfd.readouterr(), *(data.decode() for _, data in stored(door.files)), *door.browser.seen,
        *map(str, door.gate.notices()), repr(door.log_in._login),
    ])
    secrets = [SECRET, *provider.given_codes, *provider.id_tokens]
    assert [one for one in secrets if one in everything] == []


async def test_without_a_log_in_by_an_issuer_there_is_none() -> None:
    async with guarded_door() as plain:
        page = await plain.http.get("/ui/login", headers={"accept": "text/html"})
        assert "oidc" not in page.text
        for path in ("/ui/login/oidc", "/ui/login/callback?code=x"):
            assert (await plain.http.get(path, headers={"accept": "text/html"})).status_code == 404
