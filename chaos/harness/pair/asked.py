"""Both sites as anybody sees them who has their addresses: each is asked by itself, whoever started it.

What always holds: nothing here starts, stops or changes a site; every question ends by its deadline.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from twinlog.errors import TwinlogError, Unavailable
from twinlog.sites import ALIVE, Sites
from twinlog.wire.tls import Tls

SITES = ("a", "b")
OTHER = {"a": "b", "b": "a"}
LOOK_S = 2.0
START_S = 60.0
POLL_S = 0.1


class AskedSites:
    """`urls`: site -> the address at which it is asked. `tls`, `token`: as of a Client."""

    def __init__(self, urls: Mapping[str, str], tls: Tls | None = None, token: str | None = None) -> None:
        self.direct = Sites(urls, look_s=LOOK_S, tls=tls, token=token)

    def documents(self) -> dict[str, dict[str, Any]]:
        """The cluster document of each site that answers."""
        answers = self.direct.ask_all("/v1/cluster")
        return {site: answer for site, answer in answers.items() if isinstance(answer, dict)}

    def wait_for_answer(self, site: str) -> None:
        """Raises Unavailable when it does not answer in time."""
        until_s = time.monotonic() + START_S
        while True:
            try:
                self.direct.ask(site, "GET", ALIVE)
                return
            except TwinlogError as error:
                if time.monotonic() > until_s:
                    raise Unavailable(f"site {site} does not answer: {error.message}") from error
            time.sleep(POLL_S)

    def revive(self) -> Sequence[str]:
        """Starts what died, where that is ours to do. The sites that were started."""
        return ()

    def close(self) -> None:
        self.direct.close()
