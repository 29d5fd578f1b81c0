"""The sessions of the page: a cookie names one, and the token that was given at the log-in stays in this process.

What always holds: a cookie holds a random number and no token; a session ends by the log-out, after IDLE_S without a page, and
with the process; who logs in gets a new number; a form is taken only with the text that its page got for this very number, so
that no page of another site can send one.
"""

from __future__ import annotations

import hmac
from collections import OrderedDict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from hashlib import sha256

from gateway.access.caller import Caller

IDLE_S = 1800.0
SESSIONS_MAX = 1000
_NUMBER_MAX = 128


def cookie_of(headers: Iterable[tuple[bytes, bytes]], name: str) -> str:
    """Returns the value of the request's cookie of this name; empty: there is none."""
    wanted = f"{name}=".encode()
    for header, value in headers:
        if header == b"cookie":
            for part in value.split(b";"):
                if part.strip().startswith(wanted):
                    return part.strip()[len(wanted):].decode("latin-1")
    return ""


@dataclass(slots=True)
class _PageSession:
    token: str
    caller: Caller  # at the log-in; what it may do now, the gate judges with the token
    used_s: float


class Sessions:
    """`secret()` makes an unguessable text; `now_s` is a monotonic clock; `name` is that of the cookie."""

    def __init__(self, name: str, secret: Callable[[], str], now_s: Callable[[], float]) -> None:
        self.name = name
        self._secret, self._now_s = secret, now_s
        self._key = secret().encode()
        self._sessions: OrderedDict[str, _PageSession] = OrderedDict()

    def number_of(self, headers: Iterable[tuple[bytes, bytes]]) -> str:
        """Returns the number that the request's cookie has; empty: none."""
        return cookie_of(headers, self.name)[:_NUMBER_MAX]

    def new_number(self) -> str:
        return self._secret()

    def begin(self, token: str, caller: Caller) -> str:
        """Returns the number of a new session."""
        number = self.new_number()
        self._sessions[number] = _PageSession(token, caller, self._now_s())
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return number

    def token_of(self, number: str, *, is_use: bool = True) -> str | None:
        """Returns the token of a session that lives. `is_use`: a person asks, so that it is not idle."""
        session = self._sessions.get(number)
        if session is None:
            return None
        if self._now_s() - session.used_s > IDLE_S:
            del self._sessions[number]
            return None
        if is_use:
            session.used_s = self._now_s()
            self._sessions.move_to_end(number)
        return session.token

    def end(self, number: str) -> Caller | None:
        """Returns who had logged in; None: there is no such session."""
        session = self._sessions.pop(number, None)
        return None if session is None else session.caller

    # ---- forms
    def form_text(self, number: str) -> str:
        """Returns what a form of this session's pages carries."""
        return hmac.new(self._key, number.encode(), sha256).hexdigest()

    def is_own_form(self, number: str, text: str) -> bool:
        """True where the form is of a page that this process gave to this browser."""
        return bool(number) and hmac.compare_digest(self.form_text(number).encode(), text.encode())

    def cookie(self, number: str, *, is_secure: bool) -> str:
        """Returns the value of Set-Cookie; an empty number deletes it."""
        end = "" if number else "; Max-Age=0"
        return f"{self.name}={number}; Path=/ui; HttpOnly; SameSite=Strict{'; Secure' if is_secure else ''}{end}"
