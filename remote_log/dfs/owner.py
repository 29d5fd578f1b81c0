"""A gateway marks its own DFS with the names of its pair and its site, and no other site takes that DFS for its own.

What always holds: a DFS that the other site has marked is neither written nor claimed on: with `[dfs.own]` and `[dfs.peer]`
exchanged in a file, both logs would be at one site, and nobody would say so. One without a mark is taken, for the other
gateway may not have started yet, or be of an earlier release. Source: docs/decisions/2026-11-24-a-dfs-says-whose-it-is.md.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from twinlog.errors import DfsError

MARK = ".twinlog"  # hidden folder below the root: a gateway has found its own DFS here when it started


@dataclass(frozen=True, slots=True)
class Owner:
    """The site whose own DFS it is, of one pair."""

    pair: str
    site: str

    @property
    def mark(self) -> str:
        """The name of its mark in the folder MARK. A pair's name has no dot."""
        return f"{self.pair}.{self.site}"

    def check(self, marks: Iterable[str], where: str, setting: str) -> None:
        """`marks`: the names in the folder MARK; `setting`: where the DFS is configured. Raises DfsError when a mark is that of
        another site of the pair."""
        for mark in sorted(marks):
            pair, _, site = mark.partition(".")
            if pair == self.pair and site != self.site:
                raise DfsError(
                    f"the DFS {where} ({setting}) is marked as that of site {site}, and this gateway takes it for that of site"
                    f" {self.site}: [dfs.own] and [dfs.peer] are exchanged in one site's file, so correct that file; if the DFS"
                    f" is that of site {self.site}, delete {MARK}/{mark} there", setting=setting, site=site,
                )
