"""The gate before every route: finds out who asks, whether they may, and whether it is not too much.

What always holds: it decides before a byte of a body is read; a request of the hot path is let through by the same proofs,
grants and budgets as one of the plain way, and whatever this fast look does not let through is judged in full, there; a proof
is kept no longer than it is valid, none outlives a change of the files that it came from, and the number kept is bounded; what
is unknown is refused behind a look at the files (looking.py), and what is known waits for none; a refusal's reason stands in
the log, with the address and without what was presented, and a flood of refusals is answered late.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Sequence
from functools import partial
from hashlib import sha256
from hmac import compare_digest
from typing import Any
from urllib.parse import unquote

import structlog

from gateway.access.authenticator import Authenticator, Presented, Proof, nobody, refused
from gateway.access.caller import CALLER, NOBODY, SITE_IN_PLAIN, Caller
from gateway.access.grants import READER, WRITER
from gateway.access.limits import Budget, Budgets, LimitSettings
from gateway.access.looking import FileLooks
from gateway.access.needs import Need
from storage.rows.schema import name_before_drop
from twinlog.errors import Forbidden, Overloaded, TwinlogError, Unauthenticated

ADMITTED = "twinlog.admitted"  # in the scope of a request: the path of the route that it was let through to
PROOFS_MAX = 4096
DECISIONS_MAX = 4096
TOKEN_BYTES_MAX = 16 << 10
_LOGGED_PER_S = 20
REFUSED_AT_ONCE_PER_S = 100
REFUSED_LATE_S = 1.0
_log = structlog.get_logger("gateway.access")


class _Known:
    """A proof with what was decided by it: for a role and the bytes of a table's name, whether it is granted."""

    __slots__ = ("budget", "caller", "decided", "until_s")

    def __init__(self, proof: Proof, budget: Budget) -> None:
        self.caller, self.until_s, self.budget = proof.caller, proof.until_s, budget
        self.decided: dict[tuple[str, bytes], bool] = {}

    def decide(self, role: str, table: bytes) -> bool:
        if len(self.decided) >= DECISIONS_MAX:
            self.decided.clear()
        found = self.decided[role, table] = self.caller.grants.on(role, table_name(table.decode("latin-1")))
        return found


class LastProof:
    """Keeps what the last request of one connection was let through by: the same header needs no SHA-256 again."""

    __slots__ = ("changes", "known", "value")

    def __init__(self) -> None:
        self.value, self.changes = b"", -1  # of no gate
        self.known: _Known | None = None


class Gate:
    """`wall_s` ends proofs, `now_s` is the clock of rates. `plain_peer`: calls of the other site need no proof here."""

    def __init__(
        self, authenticators: Sequence[Authenticator], limits: LimitSettings, *, wall_s: Callable[[], float],
        now_s: Callable[[], float], plain_peer: bool = False, sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self.authenticators = authenticators
        self.on_refused: Callable[[TwinlogError, Caller | None, Any], None] = lambda error, caller, scope: None
        self.on_changed: Callable[[Authenticator], None] = lambda authenticator: None
        self._wall_s, self._now_s, self._sleep, self._plain_peer = wall_s, now_s, sleep, plain_peer
        self._budgets = Budgets(limits)
        self._known: OrderedDict[bytes | str, _Known] = OrderedDict()
        self._changes = 0
        self._looks = [FileLooks(partial(self._refresh, authenticator), now_s, sleep) for authenticator in authenticators]
        self.limited = 0  # requests of identities that had used up their limits
        self._second_s, self._refused = 0.0, 0  # the second that runs, and how many were refused in it

    # ---- the plain way
    async def admit(self, scope: Any, need: Need, route: str, table: str) -> Budget | None:
        """Puts the caller into the scope. Returns the budget in which the request is counted until `leave` is called; None
        where nobody has one. Raises Unauthenticated, Forbidden, Overloaded, Unavailable.
        """
        scope[ADMITTED] = route
        if need.scope == "open":
            scope[CALLER] = NOBODY
            return None
        if need.scope == "peer" and self._plain_peer:
            scope[CALLER] = SITE_IN_PLAIN
            return None
        caller = None
        try:
            known = await self._identify(scope)
            caller = scope[CALLER] = known.caller
            missing = need.missing(caller, table_name(table))
            if missing is not None:
                raise missing
            known.budget.enter(self._now_s(), _length(scope["headers"]))
            return known.budget
        except TwinlogError as error:
            self.limited += isinstance(error, Overloaded)
            self.note(error, caller, scope)
            raise

    async def is_known(self, scope: Any) -> bool:
        """Returns whether the request shows who asks. Nothing is counted or noted: nobody is refused anything by it."""
        try:
            await self._identify(scope)
        except TwinlogError:
            return False
        return True

    async def _identify(self, scope: Any) -> _Known:
        values = [value for name, value in scope["headers"] if name == b"authorization"]
        if len(values) > 1:
            raise refused("Authorization is there more than once")
        certificates = certificates_of(scope)
        if not values and not certificates:
            raise nobody()
        value = values[0] if values else None
        key = _key(value, certificates)
        known = self._look(key)
        return known if known is not None else await self._prove(key, value, certificates)

    async def _prove(self, key: bytes | str, value: bytes | None, certificates: tuple[str, ...]) -> _Known:
        presented = Presented("" if value is None else bearer_of(value), () if value is not None else certificates)
        changes = self._changes
        for authenticator, looks in zip(self.authenticators, self._looks, strict=True):
            try:
                proof = await authenticator.authenticate(presented)
            except Unauthenticated as error:
                if not error.is_unknown:
                    raise
                await looks.for_unknown()  # it may be newer than what was read last
                changes = self._changes
                proof = await authenticator.authenticate(presented)
            if proof is not None:
                known = _Known(proof, self._budgets.of(proof.caller.kind, proof.caller.name, self._now_s()))
                if changes == self._changes:  # else it may be of a file that was replaced meanwhile: proven again next time
                    self._keep(key, known)
                return known
        raise refused("no authenticator knows this kind of proof")

    # ---- the hot path
    def hot(
        self, value: bytes | None, certificates: tuple[str, ...], is_write: bool, table: bytes, last: LastProof | None = None
    ) -> Budget | None:
        """Returns the budget in which the request is to be counted, if all is known and granted; None: the plain way judges
        it. `last`: of its connection, which others may share through a proxy, so headers are compared in constant time. HOT."""
        if value is not None:
            if last is not None and last.changes == self._changes and compare_digest(last.value, value):
                known = last.known
            else:
                known = self._known.get(sha256(value).digest())
                if known is not None and last is not None:
                    last.value, last.changes, last.known = value, self._changes, known
        elif certificates:
            known = self._known.get(_key(None, certificates))
        else:
            return None
        if known is None or (known.until_s is not None and known.until_s <= self._wall_s()):
            return None
        role = WRITER if is_write else READER
        granted = known.decided.get((role, table))
        if granted is None:
            granted = known.decide(role, table)
        budget = known.budget
        if not granted or (not budget.is_unlimited and (budget.is_full() or budget.wait_s(self._now_s()))):
            return None
        return budget

    # ---- what is kept
    def _look(self, key: bytes | str) -> _Known | None:
        known = self._known.get(key)
        if known is not None and known.until_s is not None and known.until_s <= self._wall_s():
            del self._known[key]
            return None
        return known

    def _keep(self, key: bytes | str, known: _Known) -> None:
        if len(self._known) >= PROOFS_MAX:
            self._known.popitem(last=False)
        self._known[key] = known

    def _forget(self) -> None:
        """Each caller is proven again, on connections that are open too: those compare the number of changes."""
        self._changes += 1
        self._known.clear()

    async def refresh(self) -> None:
        """Lets everybody look at their files and keys again; what was proven before a change is forgotten."""
        for looks in self._looks:
            await looks.once()

    async def _refresh(self, authenticator: Authenticator) -> None:
        if await authenticator.refresh():
            self._forget()
            self.on_changed(authenticator)

    def apply(self, limits: LimitSettings) -> None:
        """Other limits, and perhaps other grants, from now on: what was proven before is forgotten."""
        self._budgets.apply(limits, self._now_s())
        self._forget()

    async def run(self) -> None:
        """Refreshes for ever; whoever hangs holds up nobody else."""
        await asyncio.gather(*(looks.run() for looks in self._looks))

    def notices(self) -> list[str]:
        """Returns whose files or keys cannot be read again, for operators. Those that were read last stay valid."""
        found = (getattr(authenticator, "fault", "") for authenticator in self.authenticators)
        return [fault for fault in found if fault]

    async def close(self) -> None:
        for looks in self._looks:
            await looks.close()
        for authenticator in self.authenticators:
            await authenticator.close()

    # ---- what is said
    async def before_refusal(self) -> None:
        """Waits a second in a flood of refusals: whoever asks again at once, whatever the answer, would else take more of the
        site by refusals than by what is refused."""
        if self._refused > REFUSED_AT_ONCE_PER_S:
            await self._sleep(REFUSED_LATE_S)

    def note(self, error: TwinlogError, caller: Caller | None, scope: Any) -> None:
        """Reports a refusal, by this gate or by a handler that found a grant missing."""
        self.on_refused(error, caller, scope)
        now_s = self._now_s()
        if now_s - self._second_s >= 1:
            self._second_s, self._refused = now_s, 0
        self._refused += 1
        if self._refused > _LOGGED_PER_S:
            return  # a flood of refusals is in the figures, and does not fill the log
        why = error.refusal if isinstance(error, Unauthenticated) else error.message
        grant = {"grant": error.fields["grant"]} if isinstance(error, Forbidden) else {}
        client = scope.get("client")
        _log.warning(
            "a request was refused", why=why, caller=None if caller is None else caller.name, kind=None if caller is None else
            caller.kind, address=client[0] if client else None, method=scope["method"], path=scope["path"][:200], **grant,
        )


def table_name(text: str) -> str:
    """The name that grants are judged by: percent-decoded, and of a table that was dropped the one that it had."""
    return name_before_drop(unquote(text) if "%" in text else text)


def bearer_of(value: bytes) -> str:
    """The token of an Authorization header. Raises Unauthenticated."""
    scheme, _, token = value.partition(b" ")
    token = token.strip(b" ")
    if scheme.lower() != b"bearer" or not token:
        raise refused("Authorization is not `Bearer TOKEN`")
    if len(token) > TOKEN_BYTES_MAX or not token.isascii():
        raise refused("the token is too long, or is not ASCII")
    return token.decode("ascii")


def certificates_of(scope: Any) -> tuple[str, ...]:
    """The chain of the connection's client certificate, by ASGI's TLS extension."""
    tls = (scope.get("extensions") or {}).get("tls")
    return tuple(tls.get("client_cert_chain") or ()) if tls else ()


def _key(value: bytes | None, certificates: tuple[str, ...]) -> bytes | str:
    """Returns the key by which a proof is kept: never the token itself."""
    return sha256(value).digest() if value is not None else certificates[0]


def _length(headers: Sequence[tuple[bytes, bytes]]) -> int:
    return next((int(value) for name, value in headers if name == b"content-length"), 0)
