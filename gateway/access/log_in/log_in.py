"""Logs people in at the page through the OIDC issuer, and knows them by a text that stays in this process.

What always holds: who comes back is let in only by the state of his own browser's log-in, once, and by an ID token of the
issuer for this client, with the nonce of that log-in; identity and grants are judged as those of a bearer token (oidc.py), also
later, at each change of keys or grants; an ID token is no bearer token, and stays in this process, as what stands for it does;
a log-in ends with the ID token, or with `session_s`, or with the log-out. How many log-ins begin and end is bounded, for each
address and for all.
"""

from __future__ import annotations

import contextlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Mapping
from hashlib import sha256
from hmac import compare_digest
from typing import NamedTuple
from urllib.parse import urlencode, urlsplit

import httpx
import jwt

from gateway.access.authenticator import Presented, Proof, refused
from gateway.access.caller import Caller
from gateway.access.limits import Budget, Budgets, LimitSettings
from gateway.access.log_in.pending import LogInSeals, PendingLogIn
from gateway.access.log_in.provider import Provider, shown_name
from gateway.access.oidc import Claims, Oidc
from gateway.access.settings import LogInSettings, OidcSettings
from twinlog.errors import Forbidden, NotFound, Overloaded, Unauthenticated

PREFIX = "page-"  # of what stands for an ID token
KNOWN_MAX = 1000
OF_ADDRESS = LimitSettings(requests_per_s=5, concurrent=5)
OF_ALL = LimitSettings(requests_per_s=20, concurrent=20)


class _LoggedIn(NamedTuple):
    id_token: str
    until_s: float
    claims: str  # what the configuration could have granted something by


class LogIn:
    """Implements Authenticator. `wall_s` ends log-ins, `now_s` is a monotonic clock, `secret()` makes an unguessable text."""

    def __init__(
        self, settings: OidcSettings, login: LogInSettings, oidc: Oidc, *, wall_s: Callable[[], float],
        now_s: Callable[[], float], secret: Callable[[], str], transport: httpx.AsyncBaseTransport | None = None,
    ) -> None:
        """Raises ConfigError."""
        self.issuer, self.name = settings.issuer, f"the provider {shown_name(settings.issuer)}"
        self._login, self._oidc, self._wall_s, self._now_s, self._secret = login, oidc, wall_s, now_s, secret
        self._provider = Provider(settings, login, now_s, transport)
        self._pending = LogInSeals(now_s, secret)
        self._known: OrderedDict[bytes, _LoggedIn] = OrderedDict()
        self._all, self._each = Budget(OF_ALL, now_s()), Budgets(OF_ADDRESS)

    def apply(self, login: LogInSettings) -> None:
        """Another secret, other scopes or another `session_s` from now on."""
        self._login = self._provider.login = login

    @property
    def leads_out(self) -> bool:
        """Returns whether people can be led to where they log out at the issuer: it said so, and is not known to be down."""
        return bool(self._provider.end_session_url)

    async def leave(self) -> str:
        """Returns where people log out at the issuer, which answered just now. Raises Unavailable, NotFound."""
        await self._provider.endpoints()
        url = self._provider.end_session_url
        if not url:
            raise NotFound(f"{self.name} does not say where people log out there: open its own page, or log in with a token")
        return _with(url, {"client_id": self._login.client_id})

    # ---- the flow
    async def begin(self, next_path: str, session: str) -> tuple[str, str]:
        """Returns the address to which the browser is sent, and what its cookie keeps. Raises Unavailable."""
        endpoints, login = await self._provider.endpoints(), self._login
        pending = self._pending.begin(next_path, session)
        asked = {
            "response_type": "code", "client_id": login.client_id, "redirect_uri": login.redirect_url,
            "scope": " ".join(login.scopes), "state": pending.state, "nonce": pending.nonce,
            "code_challenge": pending.challenge, "code_challenge_method": "S256",
        }
        return _with(endpoints.authorization_url, asked), self._pending.seal(pending)

    def take(self, answer: Mapping[str, str], sealed: str) -> PendingLogIn:
        """Returns the log-in that the issuer's answer ends. Raises Unauthenticated, Overloaded."""
        return self._pending.take(sealed, answer.get("state", ""))

    async def finish(self, answer: Mapping[str, str], pending: PendingLogIn) -> str:
        """Returns the text by which this process knows the one who logged in. Raises Unauthenticated, Unavailable."""
        if answer.get("iss", self.issuer) != self.issuer:  # RFC 9207
            raise refused("the answer names another issuer", f"this answer is not of {self.name}: begin the log-in again")
        if "error" in answer:
            raise self._declined(answer["error"])
        code = answer.get("code", "")
        if not code:
            raise refused("the answer has neither a code nor an error", f"{self.name} sent no code: begin the log-in again")
        id_token = await self._provider.exchange(code, pending.verifier)
        claims = await self._verified(id_token, pending)
        session_s = self._login.session_s
        until_s = self._wall_s() + session_s if session_s else claims.until_s
        known = PREFIX + self._secret()
        self._known[_key(known)] = _LoggedIn(id_token, until_s, self._oidc.why_nothing_is_granted(claims))
        if len(self._known) > KNOWN_MAX:
            self._known.popitem(last=False)
        return known

    def _declined(self, error: str) -> Unauthenticated:
        if error == "access_denied":
            return refused(
                f"{self.issuer} answers 'access_denied'",
                f"you were not let in at {self.name}, or you declined there: begin again, or log in with a token",
            )
        return refused(
            f"{self.issuer} answers {error[:80]!r} instead of a code",
            f"{self.name} did not complete the log-in: begin again; if that does not help, whoever runs this pair finds its "
            "answer in the log of this gateway",
        )

    async def _verified(self, id_token: str, pending: PendingLogIn) -> Claims:
        try:
            claims = await self._oidc.claims_of(id_token, self._login.client_id)
        except Unauthenticated as error:
            if isinstance(error.__cause__, jwt.ExpiredSignatureError | jwt.ImmatureSignatureError):
                said = (
                    f"what {self.name} says of you is not valid at the time of this gateway: the clocks of the two differ by "
                    "more than 30 s; whoever runs this pair sets them"
                )
            else:
                said = (
                    f"what {self.name} says of you is not valid here, and the log of this gateway says why: whoever runs "
                    "this pair looks at [access.oidc]"
                )
            raise refused(f"the ID token of {self.issuer}: {error.refusal}", said) from error
        held, client_id = claims.said, self._login.client_id
        nonce = held.get("nonce")
        if not isinstance(nonce, str) or not compare_digest(nonce.encode("utf-8", "replace"), pending.nonce.encode()):
            raise refused(
                f"the ID token of {self.issuer} for {claims.name!r} has not the nonce of this log-in",
                f"what {self.name} says of you is of another log-in: begin it again",
            )
        is_for_several = isinstance(held["aud"], list) and len(held["aud"]) > 1
        if held.get("azp", None if is_for_several else client_id) != client_id:
            raise refused(
                f"the ID token of {self.issuer} for {claims.name!r} was made for another client",
                f"what {self.name} says of you is for another client: begin the log-in again",
            )
        return claims

    # ---- who is known
    def end(self, known: str) -> None:
        """Ends a log-in; nothing where there is none."""
        self._known.pop(_key(known), None)

    def nothing_granted(self, known: str, caller: Caller) -> Forbidden:
        """Ends the log-in of somebody to whom the configuration grants nothing, and returns what he reads."""
        held = self._known.pop(_key(known), None)
        return Forbidden(
            f"{self.name} knows you as {caller.name}, and nothing is granted to you here"
            f"{f' ({held.claims})' if held else ''}: ask an administrator of this pair to put one of your groups into "
            "[access.oidc.grants], then log in again", grant="any of [access.oidc.grants]",
        )

    async def authenticate(self, presented: Presented) -> Proof | None:
        if not presented.bearer.startswith(PREFIX):
            return None
        found = self._known.get(_key(presented.bearer))
        if found is not None and found.until_s <= self._wall_s():
            self.end(presented.bearer)
            found = None
        if found is None:
            raise refused("the log-in is over")
        claims = await self._oidc.claims_of(found.id_token, self._login.client_id, ends=False)
        return Proof(self._oidc.caller_of(claims), found.until_s)

    @contextlib.contextmanager
    def attempt(self, address: str) -> Iterator[None]:
        """Counts a step of a log-in inside the block. Raises Overloaded."""
        now_s = self._now_s()
        budgets = (self._each.of("address", address, now_s), self._all)
        with contextlib.ExitStack() as entered:
            for budget in budgets:
                try:
                    budget.enter(now_s, 0)
                except Overloaded as error:
                    raise Overloaded(
                        "too many log-ins at a time: wait a moment, then begin again", **error.fields
                    ) from error
                entered.callback(budget.leave)
            yield

    # ---- as an authenticator
    @property
    def fault(self) -> str:
        """Says why nobody can log in by the issuer; an empty text where they can."""
        return f"nobody can log in at the page by {self.issuer}: {self._provider.fault}" if self._provider.fault else ""

    async def refresh(self) -> bool:
        if self._provider.is_down:  # so that it is said no longer than it is so
            await self._provider.look()
        return False

    async def close(self) -> None:
        await self._provider.close()


def _with(url: str, asked: Mapping[str, str]) -> str:
    return f"{url}{'&' if urlsplit(url).query else '?'}{urlencode(asked)}"


def _key(known: str) -> bytes:
    return sha256(known.encode()).digest()
