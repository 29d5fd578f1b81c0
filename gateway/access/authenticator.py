"""The port of those who find out who asks: tokens, OIDC, client certificates, and what a distribution adds by an entry point.

What always holds: an authenticator that does not know this kind of proof returns None, and the next one is asked; one that
knows the kind and finds it wrong raises Unauthenticated, and nobody else is asked. The `refusal` of that error is for the
site's log alone: a client learns that its proof is not valid, and no more.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from gateway.access.caller import Caller
from twinlog.errors import InvalidInput, Unauthenticated

GROUP = "twinlog.authenticators"  # entry points: a name, and a factory that gets the options of `[access.plugin]`


@dataclass(frozen=True, slots=True)
class Presented:
    """The proofs that a request shows: the token of `Authorization: Bearer`, and the chain of its connection's certificate as
    PEM, the client's own first."""

    bearer: str = field(default="", repr=False)
    certificates: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Proof:
    """A caller that is proven. `until_s`: on the wall clock, the moment at which this ends; None: it does not by itself."""

    caller: Caller
    until_s: float | None = None


class Authenticator(Protocol):
    async def authenticate(self, presented: Presented) -> Proof | None:
        """Raises Unauthenticated, or Unavailable where it cannot find out now."""
        ...

    async def refresh(self) -> bool:
        """Looks at its files and keys again. True: what it said before may not hold any more."""
        ...

    async def close(self) -> None: ...


def refused(refusal: str, said: str = "") -> Unauthenticated:
    """`refusal` says why, for the site's log alone; `said` is for whoever is refused, where there is more to say than usual."""
    return _unauthenticated(
        said or "the identity that was presented is not valid here: send a token that is, as `Authorization: Bearer TOKEN`",
        refusal,
    )


def unknown(refusal: str) -> Unauthenticated:
    """As `refused`, of what a look at the files of the authenticator may find: the gate makes it look, and asks once more."""
    error = refused(refusal)
    error.is_unknown = True
    return error


def nobody() -> Unauthenticated:
    return _unauthenticated(
        "this site answers only those it knows: send a token, as `Authorization: Bearer TOKEN`, or a client certificate",
        "nothing was presented",
    )


def _unauthenticated(text: str, refusal: str) -> Unauthenticated:
    error = Unauthenticated(text)
    error.refusal = refusal
    return error


def from_entry_point(name: str, options: Mapping[str, Any]) -> Authenticator:
    """The authenticator that another distribution adds under `name`. Raises InvalidInput."""
    from importlib.metadata import entry_points

    for point in entry_points(group=GROUP, name=name):
        made: Authenticator = point.load()(options)
        return made
    known = ", ".join(sorted(point.name for point in entry_points(group=GROUP))) or "none"
    raise InvalidInput(f"no distribution adds an authenticator {name!r}; those that are installed: {known}")
