"""The trail of a gateway's life: its start and stop, those who were refused, and what changed in the files of [access].

What always holds: the trail is open before the site acts, and the line of the stop is its last one; a refusal costs the request
that was refused no wait; a token file that changed is named with the names that came and went, never with a digest of a token.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from gateway.access.authenticator import Authenticator
from gateway.access.caller import CALLER, Caller
from gateway.access.gate import Gate
from gateway.trail.entry import cut_text
from gateway.trail.events import ACCESS, REFUSED, STARTED, STOPPED
from gateway.trail.refusals import INTERVAL_S, RefusalCounts
from gateway.trail.trail import Trail
from gateway.trail.who import who_of
from storage.clock import Clock
from twinlog.errors import Forbidden, TwinlogError, Unauthenticated, words


@asynccontextmanager
async def kept_trail(trail: Trail, what: dict[str, Any]) -> AsyncIterator[Trail]:
    """Opens the trail; inside the block it is written. `what` stands in the line of the start."""
    await trail.open()
    ended = None if trail.last is None else "stopped" if trail.last.event == STOPPED else "ended without a stop"
    trail.put(STARTED, trail.this_site, "noted", {**what, "pid": os.getpid(), **({"before": ended} if ended else {})})
    why: dict[str, Any] = {}
    try:
        yield trail
    except BaseException as error:
        if isinstance(error, Exception):
            why = {"error": cut_text(words(error))}
        raise
    finally:
        trail.put(STOPPED, trail.this_site, "noted", why)
        await trail.close()


class AccessTrail:
    """Lines about a gate: whom it refuses, and what changed in the files that it reads."""

    def __init__(self, trail: Trail, clock: Clock, gate: Gate) -> None:
        self._trail, self._clock = trail, clock
        self._refusals = RefusalCounts()
        self._shown: dict[int, dict[str, Any]] = {}
        for authenticator in gate.authenticators:
            self._changed(authenticator)
        gate.on_refused = self.refused
        gate.on_changed = self._changed

    async def run(self) -> None:
        while True:
            await self._clock.sleep(INTERVAL_S / 4)
            self.summarise()

    def summarise(self, *, anyhow: bool = False) -> None:
        for who, what in self._refusals.due(self._clock.monotonic_s(), anyhow=anyhow):
            self._trail.put(REFUSED, who, "refused", what)

    def refused(self, error: TwinlogError, caller: Caller | None, scope: Any) -> None:
        """Called for each refusal, on the event loop; waits for nothing."""
        if not isinstance(error, Unauthenticated | Forbidden):
            return  # too much of what is granted is in the figures
        grant = {"grant": error.fields["grant"]} if isinstance(error, Forbidden) else {}
        why = error.refusal if isinstance(error, Unauthenticated) else error.message
        what = {"why": cut_text(why), "method": scope["method"], "path": scope["path"][:200], **grant}
        line = self._refusals.note(self._clock.monotonic_s(), who_of({**scope, CALLER: caller}), error.code, what)
        if line is not None:
            self._trail.put(REFUSED, line[0], "refused", line[1])

    def _changed(self, authenticator: Authenticator) -> None:
        """Notes what the files of an authenticator say now, and how that differs from what they said before in this life."""
        shown = getattr(authenticator, "shown", None)
        now: dict[str, Any] = shown() if callable(shown) else {}
        before = self._shown.get(id(authenticator))
        self._shown[id(authenticator)] = now
        what: dict[str, Any] = {"kind": type(authenticator).__name__, **{key: now[key] for key in now if key != "known"}}
        if before is None:
            what["known"] = sorted(now.get("known", {}))
        else:
            what |= differences(before.get("known", {}), now.get("known", {}))
        self._trail.put(ACCESS, self._trail.this_site, "noted", what)


def differences(before: dict[str, Any], now: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Names that came, went, or mean something else than before, with what they mean."""
    found = {
        "added": {name: now[name] for name in sorted(now.keys() - before.keys())},
        "removed": {name: before[name] for name in sorted(before.keys() - now.keys())},
        "changed": {
            name: {"before": before[name], "now": now[name]} for name in sorted(now.keys() & before.keys())
            if now[name] != before[name]
        },
    }
    return {what: names for what, names in found.items() if names}


def configuration_digest(config: object) -> str:
    """Names a configuration: equal for equal ones. Secrets are not in its text."""
    return hashlib.sha256(repr(config).encode()).hexdigest()[:16]
