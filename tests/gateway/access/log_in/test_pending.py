"""A browser keeps a log-in whole and sealed, for ten minutes, for one use; nothing else opens."""

from __future__ import annotations

import base64
import hashlib
import itertools
import secrets

import pytest
from hypothesis import given
from hypothesis import strategies as some

from gateway.access.log_in import pending as room
from gateway.access.log_in.pending import PENDING_S, LogInSeals, PendingLogIn
from twinlog.errors import Overloaded, Unauthenticated

TEXT = some.text(max_size=60)
ANY = some.builds(PendingLogIn, TEXT, TEXT, TEXT, TEXT, TEXT)


class Now:
    s = 5.0

    def __call__(self) -> float:
        return self.s


def made(now: Now | None = None) -> LogInSeals:
    return LogInSeals(now or Now(), lambda: secrets.token_urlsafe(32))


MADE, OTHER = made(), made()


@given(ANY)
def test_what_was_sealed_opens_here_alone_and_shows_nothing(pending: PendingLogIn) -> None:
    sealed = MADE.seal(pending)
    assert MADE.open(sealed) == pending
    assert OTHER.open(sealed) is None
    assert len(pending.verifier) < 8 or pending.verifier not in sealed


@given(ANY, some.data())
def test_no_byte_of_a_seal_can_be_changed(pending: PendingLogIn, data: some.DataObject) -> None:
    sealed = base64.urlsafe_b64decode(MADE.seal(pending))
    at = data.draw(some.integers(0, len(sealed) - 1))
    bit = 1 << data.draw(some.integers(0, 7))
    changed = sealed[:at] + bytes([sealed[at] ^ bit]) + sealed[at + 1:]
    assert MADE.open(base64.urlsafe_b64encode(changed).decode()) is None
    assert MADE.open(base64.urlsafe_b64encode(sealed[:at]).decode()) is None


@given(some.text(some.characters(max_codepoint=255), max_size=300))
def test_whatever_else_a_cookie_has_is_refused(text: str) -> None:
    assert MADE.open(text) is None
    with pytest.raises(Unauthenticated):
        MADE.take(text, text)


def test_a_seal_ends() -> None:
    now = Now()
    mine = made(now)
    sealed = mine.seal(mine.begin("/ui", ""))
    now.s += PENDING_S
    assert mine.open(sealed) is not None
    now.s += 1
    assert mine.open(sealed) is None


def test_a_state_is_taken_once_as_long_as_its_seal_opens() -> None:
    now = Now()
    mine = made(now)
    begun = mine.begin("/ui", "")
    sealed = mine.seal(begun)
    for wrong in ("", begun.state + "x", begun.nonce, "é"):
        with pytest.raises(Unauthenticated):
            mine.take(sealed, wrong)
    assert mine.take(sealed, begun.state) == begun
    for now.s in (5.0, 5.0 + PENDING_S):
        with pytest.raises(Unauthenticated) as again:
            mine.take(sealed, begun.state)
        assert "used before" in again.value.message
    assert begun.state not in again.value.refusal


def test_what_is_remembered_is_bounded_and_forgets_nothing_too_early(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "TAKEN_MAX", 3)
    now, numbers = Now(), itertools.count()
    mine = LogInSeals(now, lambda: f"n{next(numbers)}")
    begun = [mine.begin("/ui", "") for _ in range(4)]
    for one in begun[:3]:
        mine.take(mine.seal(one), one.state)
    with pytest.raises(Overloaded):
        mine.take(mine.seal(begun[3]), begun[3].state)
    with pytest.raises(Unauthenticated):
        mine.take(mine.seal(begun[0]), begun[0].state)
    now.s += PENDING_S + 2
    mine.take(mine.seal(begun[3]), begun[3].state)
    assert len(mine._taken) == 1


def test_the_challenge_is_the_digest_of_the_verifier() -> None:
    """The example of RFC 7636, appendix B."""
    pending = PendingLogIn("s", "n", "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk", "/ui")
    assert pending.challenge == "E9Melhoa2OwvFrEMTJguCHaoeK1t8URWbuGJSstw-cM"
    assert base64.urlsafe_b64decode(pending.challenge + "=") == hashlib.sha256(pending.verifier.encode()).digest()
