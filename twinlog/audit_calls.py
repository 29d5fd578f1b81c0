"""The client's calls for barriers and audits; some are for one site and not for the active.

What always holds: as for every other call (client.py). Source: protocol.md section 9.
"""

from __future__ import annotations

import secrets
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any, TypeVar

from twinlog import calls
from twinlog.calls import TypedCall

_T = TypeVar("_T")


def _new_name() -> str:
    return f"barrier-{secrets.token_hex(8)}"


class AuditCalls(ABC):
    """Part of the blocking client. `site` None: the active."""

    @abstractmethod
    def _run(self, asked: TypedCall[_T], deadline_s: float | None = None) -> _T: ...

    def take_barrier(self, name: str | None = None) -> dict[str, Any]:
        """Both sites keep a snapshot exactly there; the other one once it is there. Raises Conflict when too many are held."""
        return self._run(calls.take_barrier(name or _new_name(), _new_name()))

    def barriers(self, site: str | None = None) -> list[dict[str, Any]]:
        """The barriers that `site` holds."""
        return self._run(calls.barriers(site))

    def barrier(self, name: str, site: str | None = None) -> dict[str, Any]:
        """Raises NotFound as long as `site` does not hold its snapshot."""
        return self._run(calls.barrier(name, site))

    def release_barrier(self, name: str, site: str | None = None) -> None:
        """Releases the snapshot of one site. Raises NotFound."""
        self._run(calls.release_barrier(name, site))

    def note_audit(self, audit: Mapping[str, Any], site: str | None = None) -> dict[str, Any]:
        """Reports to `site` what an audit found; `audit` as in the API."""
        return self._run(calls.note_audit(audit, site))

    def last_audits(self, site: str | None = None) -> dict[str, Any]:
        """The last of each job, and the last comparison that found both sites equal."""
        return self._run(calls.last_audits(site))

    def audits(self, site: str | None = None) -> dict[str, Any]:
        """The audits that run, and the last runs that `site` was notified of."""
        return self._run(calls.audits(site))

    def audit(self, audit: str, site: str | None = None) -> dict[str, Any]:
        """One audit, with its report as far as the caller may see it. Raises NotFound."""
        return self._run(calls.audit(audit, site))


class AsyncAuditCalls(ABC):
    """Part of the asynchronous client."""

    @abstractmethod
    async def _run(self, asked: TypedCall[_T], deadline_s: float | None = None) -> _T: ...

    async def take_barrier(self, name: str | None = None) -> dict[str, Any]:
        return await self._run(calls.take_barrier(name or _new_name(), _new_name()))

    async def barriers(self, site: str | None = None) -> list[dict[str, Any]]:
        return await self._run(calls.barriers(site))

    async def barrier(self, name: str, site: str | None = None) -> dict[str, Any]:
        return await self._run(calls.barrier(name, site))

    async def release_barrier(self, name: str, site: str | None = None) -> None:
        await self._run(calls.release_barrier(name, site))

    async def note_audit(self, audit: Mapping[str, Any], site: str | None = None) -> dict[str, Any]:
        return await self._run(calls.note_audit(audit, site))

    async def last_audits(self, site: str | None = None) -> dict[str, Any]:
        return await self._run(calls.last_audits(site))

    async def audits(self, site: str | None = None) -> dict[str, Any]:
        return await self._run(calls.audits(site))

    async def audit(self, audit: str, site: str | None = None) -> dict[str, Any]:
        return await self._run(calls.audit(audit, site))
