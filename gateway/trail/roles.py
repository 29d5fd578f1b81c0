"""Role changes that no operation makes: a degrade by the policy, its end, an epoch that ended, a fencing.

What always holds: each step of the role table at this site is a line, by the site itself, with epoch, mode and reason; where an
operation is under way the line names it. Nothing waits for the line: a fenced site stops at once.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gateway.trail.entry import cut_text
from gateway.trail.events import FENCES, ROLE
from gateway.trail.trail import Trail


class RolesOfSite(Protocol):
    """The part of gateway/site/site.py that is named in the lines."""

    peer: str

    @property
    def role(self) -> str: ...
    @property
    def epoch(self) -> int: ...
    @property
    def mode(self) -> str: ...


class RoleTrail:
    """`operation`: the id of the one that runs here; None: there is none."""

    def __init__(self, trail: Trail, site: RolesOfSite, operation: Callable[[], str | None]) -> None:
        self._trail, self._site, self._operation = trail, site, operation

    def changed(self, cause: str, before: str, why: str) -> None:
        """A step of the role table was made, or the mode of a draining site changed."""
        site = self._site
        what = {"kind": cause, "from": str(before), "to": str(site.role), "epoch": site.epoch, "mode": site.mode}
        self._put(ROLE, {**what, "why": cut_text(why)})

    def fenced(self, epoch: int, dfs: str) -> None:
        """Every log below `epoch` on the DFS of site `dfs` is closed: whoever wrote one acknowledges nothing more by it."""
        self._put(FENCES, {"epoch": epoch, "logs": f"those below epoch {epoch} on the DFS of site {dfs}"})

    def _put(self, event: str, what: dict[str, Any]) -> None:
        self._trail.put(event, self._trail.this_site, "noted", what, operation=self._operation() or "")
