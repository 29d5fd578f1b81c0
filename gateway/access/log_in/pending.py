"""A log-in that was begun and is not over: what the browser keeps of it, sealed, until the issuer sends it back.

What always holds: the seal is opened by the process that made it, unchanged, and for PENDING_S alone; a state is taken once,
and one that was taken is remembered for as long as its seal could be opened; state, nonce and verifier are three random texts
that only this process and the browser's cookie have, and the issuer gets the verifier's digest until the code comes back.
Source: RFC 6749 section 4.1, RFC 7636, OpenID Connect Core section 3.1.
"""

from __future__ import annotations

from base64 import urlsafe_b64encode
from collections import OrderedDict
from collections.abc import Callable
from hashlib import sha256
from hmac import compare_digest

import msgspec
from cryptography.fernet import Fernet, InvalidToken

from gateway.access.authenticator import refused
from twinlog.decoding import or_none
from twinlog.errors import Overloaded

PENDING_S = 600
TAKEN_MAX = 20_000  # states; the rates of log_in.py let fewer be taken in PENDING_S
_AGAIN = "begin it again with the button below"


class PendingLogIn(msgspec.Struct, frozen=True, array_like=True):
    """`session`: the number that the browser had at the page when it began."""

    state: str
    nonce: str
    verifier: str
    next_path: str
    session: str = ""

    @property
    def challenge(self) -> str:
        """Returns what the issuer is shown of the verifier (S256)."""
        return urlsafe_b64encode(sha256(self.verifier.encode()).digest()).rstrip(b"=").decode()


_decode = msgspec.json.Decoder(PendingLogIn).decode


class LogInSeals:
    """Seals log-ins under way, and takes each once. `now_s`: a monotonic clock; `secret()` makes an unguessable text."""

    def __init__(self, now_s: Callable[[], float], secret: Callable[[], str]) -> None:
        self._now_s, self._secret = now_s, secret
        self._fernet = Fernet(Fernet.generate_key())
        self._taken: OrderedDict[str, float] = OrderedDict()

    def begin(self, next_path: str, session: str) -> PendingLogIn:
        return PendingLogIn(self._secret(), self._secret(), self._secret(), next_path, session)

    def seal(self, pending: PendingLogIn) -> str:
        return self._fernet.encrypt_at_time(msgspec.json.encode(pending), int(self._now_s())).decode()

    def open(self, sealed: str) -> PendingLogIn | None:
        """Returns what was sealed; None for what is not of this process, was changed, or is too old."""
        try:
            data = self._fernet.decrypt_at_time(sealed.encode("latin-1"), PENDING_S, int(self._now_s()))
        except InvalidToken:
            return None
        return or_none(_decode, data)

    def take(self, sealed: str, state: str) -> PendingLogIn:
        """Returns the log-in that `state` ends. Raises Unauthenticated: there is none, it is another one, or it was taken."""
        pending = self.open(sealed) if sealed else None
        if pending is None:
            why = "the browser shows no log-in that was begun here" if not sealed else "the seal of the log-in does not open"
            raise refused(
                why, "this browser has no log-in under way at this gateway, or it took longer than ten minutes, or the gateway "
                f"was started since: {_AGAIN}",
            )
        if not compare_digest(pending.state.encode(), state.encode("utf-8", "replace")):
            raise refused("the state is not that of this browser's log-in", (
                "this answer is of another log-in than the newest one of this browser: continue in the tab of that one, or"
                " begin again with the button below"
            ))
        self._take(pending.state)
        return pending

    def _take(self, state: str) -> None:
        now_s = self._now_s()
        while self._taken and next(iter(self._taken.values())) <= now_s:
            self._taken.popitem(last=False)
        if state in self._taken:
            raise refused("the state was used before", f"this answer was used before, and counts once: {_AGAIN}")
        if len(self._taken) >= TAKEN_MAX:
            raise Overloaded("too many log-ins: wait some minutes, or log in with a token", retry_after_s=60)
        self._taken[state] = now_s + PENDING_S + 1
