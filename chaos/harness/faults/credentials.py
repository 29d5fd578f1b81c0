"""Certificates that are renewed, and tokens that are revoked, while clients work: the handbook's rotation, which nobody notices."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import SITE_TARGETS, Kind, OnSite, Stage
from chaos.harness.pair.credentials import CLIENTS

PLAIN = "the pair has no certificates and tokens (--secured)"


@dataclass
class NewCertificate(OnSite):
    async def why_not(self) -> str:
        return await super().why_not() if self.stage.sites.credentials is not None else PLAIN

    async def inject(self) -> str:
        sites, credentials = self.stage.sites, self.stage.sites.credentials
        assert credentials is not None
        return await asyncio.to_thread(credentials.renew, self.choose(), sites.urls[self.chosen])

    async def heal(self) -> str:
        """There is nothing to undo."""
        return ""


@dataclass
class NewToken:
    fault: Fault
    stage: Stage

    async def why_not(self) -> str:
        return "" if self.stage.sites.credentials is not None else PLAIN

    async def inject(self) -> str:
        sites, credentials = self.stage.sites, self.stage.sites.credentials
        assert credentials is not None
        return await asyncio.to_thread(credentials.change_token, sites.urls)

    async def heal(self) -> str:
        """There is nothing to undo."""
        return ""


KINDS = (
    Kind(
        "certificate-renewed", SITE_TARGETS, "the site gets a new certificate and key; it runs, and shows them soon",
        lambda fault, stage: NewCertificate(stage, fault), lasts=False,
    ),
    Kind(
        "token-revoked", (CLIENTS,), "the clients get a new token, and the old one is revoked; both sites are up",
        NewToken, lasts=False,
    ),
)
