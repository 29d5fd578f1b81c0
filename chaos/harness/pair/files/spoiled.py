"""The files of a pair that faults have spoiled, as far as somebody has to come back to them: bytes that were turned, and newer
copies that lie aside.

What always holds: it says what was done, and nothing of what a gateway made of it; a damage is there as long as its file has
other bytes than before.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

LOOK_BYTES = 16


@dataclass(frozen=True)
class Damage:
    """At `offset` of `path`, where `was` stood. `site`: whose part `part` it is; of `remote` and `register`, the site by which
    the log was written, not that on whose DFS it lies. `is_cut`: the file ended there. `starts`: how often the gateway of
    `site` had been started by then."""

    site: str
    part: str
    path: Path
    offset: int
    was: bytes
    is_cut: bool
    starts: int

    @property
    def is_there(self) -> bool:
        """A file that was written anew is another one."""
        try:
            with self.path.open("rb") as file:
                file.seek(self.offset)
                now = file.read(len(self.was))
        except FileNotFoundError:
            return False
        return now != self.was if self.is_cut else len(now) == 1 and (now[0] ^ self.was[0]).bit_count() == 1


@dataclass
class Spoiled:
    """`newest`: (site, part) -> the folder with what was there before an older copy was put back, if somebody still has it; of
    the coordinator: ("w", "coordinator"). `restarted_for`: damages of a remote log for which its active was started again.
    `unreported`: sentences about damage that somebody has read over."""

    damages: list[Damage] = field(default_factory=list)
    newest: dict[tuple[str, str], Path] = field(default_factory=dict)
    restarted_for: list[Damage] = field(default_factory=list)
    unreported: list[str] = field(default_factory=list)

    def forget(self, site: str) -> None:
        """The disk of `site` is another one."""
        self.damages = [each for each in self.damages if each.site != site or each.part in ("remote", "register")]
        self.newest = {key: folder for key, folder in self.newest.items() if key[0] != site or key[1] == "dfs"}
