"""Sessions of the page: a number for a token, the text of a form, idleness."""

from __future__ import annotations

import itertools

from gateway.access.caller import NOBODY
from gateway.ui.sessions import IDLE_S, SESSIONS_MAX, Sessions


class _Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def _sessions() -> tuple[Sessions, _Clock]:
    numbers, clock = itertools.count(), _Clock()
    return Sessions("twinlog_shop_a", lambda: f"secret-{next(numbers)}", clock), clock


def test_a_cookie_holds_no_token_and_goes_to_this_site_alone() -> None:
    sessions, _ = _sessions()
    number = sessions.begin("the-token", NOBODY)
    cookie = sessions.cookie(number, is_secure=True)
    assert "the-token" not in cookie
    for part in ("HttpOnly", "SameSite=Strict", "Secure", "Path=/ui"):
        assert part in cookie.split("; ")
    assert "Secure" not in sessions.cookie(number, is_secure=False)
    assert "Max-Age=0" in sessions.cookie("", is_secure=True)


def test_a_session_ends_when_it_is_idle_and_a_stream_keeps_none() -> None:
    sessions, clock = _sessions()
    number = sessions.begin("token", NOBODY)
    clock.now_s = IDLE_S
    assert sessions.token_of(number, is_use=False) == "token"
    clock.now_s = IDLE_S + 1
    assert sessions.token_of(number) is None
    used = sessions.begin("token", NOBODY)
    clock.now_s += IDLE_S
    assert sessions.token_of(used) == "token"
    clock.now_s += IDLE_S
    assert sessions.token_of(used) == "token"


def test_a_log_out_ends_it_and_the_number_kept_is_bounded() -> None:
    sessions, _ = _sessions()
    first = sessions.begin("one", NOBODY)
    assert sessions.end(first) is NOBODY
    assert sessions.end(first) is None
    assert sessions.token_of(first) is None
    kept = sessions.begin("two", NOBODY)
    for _ in range(SESSIONS_MAX):
        sessions.begin("more", NOBODY)
    assert sessions.token_of(kept) is None


def test_a_form_belongs_to_its_browser() -> None:
    sessions, _ = _sessions()
    other, _ = _sessions()
    text = sessions.form_text("one")
    assert sessions.is_own_form("one", text)
    for number, said in (("two", text), ("", sessions.form_text("")), ("one", ""), ("one", "é")):
        assert not sessions.is_own_form(number, said)
    assert other.form_text("one") == text  # the same secrets here; of another process they differ
    assert Sessions("x", lambda: "another", lambda: 0.0).form_text("one") != text


def test_the_cookie_is_found_among_others() -> None:
    sessions, _ = _sessions()
    headers = [(b"cookie", b"a=1; twinlog_shop_b=no; twinlog_shop_a=yes"), (b"host", b"x")]
    assert sessions.number_of(headers) == "yes"
    assert sessions.number_of([(b"cookie", b"twinlog_shop_a_=no")]) == ""
