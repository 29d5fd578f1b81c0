"""The acts of the handbook that people do by hand, for what no command does: each with the handbook's words.

What always holds: one act at a time, and none that the handbook does not name for what the site itself says; a site is emptied
only while the other one says that it is the active; what is put back is the newest copy that there was.
Source: docs/operations.md.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Mapping
from pathlib import Path
from tempfile import mkdtemp
from typing import Any

from chaos.harness.pair.commands import Commands
from chaos.harness.pair.files.copies import COORDINATOR, exchanged, put_back
from chaos.harness.pair.files.spoiled import Damage
from chaos.harness.pair.sites import OTHER, SITES, RealSites
from twinlog.errors import Unavailable

HOLDERS = "`cursors/holders.json` ... delete it, start the gateway"
MARK = "`register/met.json` ... see that the register is the newest one that there is, delete the file, start the gateway"
WAL = "of a site's WAL ... stop it, give it an empty data directory, start it"
STORAGE = "of a site's storage (`engine/`), its `journal.db` or its `twinlog.json` ... the same as for the WAL"
REMOTE = "of the remote log, while the pair runs ... restart the active's gateway when it suits"
NEWEST = "put the newest copy back"
DATABASE = "put the newest database back"
_DAMAGED = re.compile(r"damaged|orrupt|malformed|cannot be opened|cannot be read|not a database|checksum|no whole RocksDB")
_WENT_BACK = re.compile("reported to the register that it had committed|before its storage at")  # of an asynchronous active
_REMOTE_FILE = re.compile(r"/[0-9]{12}/[0-9]{12}-[0-9]+\.[0-9]+")
_SERVES = ("ACTIVE", "DOWNGRADE_ACTIVE")
_ON_DFS = ("remote", "register")
Documents = Mapping[str, Mapping[str, Any]]


class Acts:
    def __init__(self, sites: RealSites, commands: Commands, note: Callable[[str], None]) -> None:
        self._sites, self._commands, self._note = sites, commands, note

    async def help(self, documents: Documents) -> bool:
        """Does what the handbook names for what the sites say. False: nothing."""
        said = {site: self._sites.refusal(site) or str(documents.get(site, {}).get("waiting_for") or "") for site in SITES}
        if COORDINATOR in self._sites.spoiled.newest and any("register went back" in words for words in said.values()):
            return await self._do(DATABASE, self._newest_database)
        for site in SITES:
            for name, quote in (("cursors/holders.json", HOLDERS), ("register/met.json", MARK)):
                if name in said[site]:
                    return await self._do(f"{quote}: site {site}", self._without, site, name)
            if _WENT_BACK.search(said[site]) and self._newest(site):
                return await self._do(f"{NEWEST}: site {site}", self._newest_back, site)
            here = _DAMAGED.search(said[site]) and not _REMOTE_FILE.search(said[site])
            if here and documents.get(OTHER[site], {}).get("role") in _SERVES:
                quote = WAL if "wal/" in said[site] else STORAGE
                return await self._do(f"{quote}: site {site}", self._emptied, site)
        return False

    async def mend_unseen(self, documents: Documents) -> bool:
        """A scrub of the disks of a pair that is whole names what is damaged and nobody has reported yet. False: nothing is."""
        spoiled = self._sites.spoiled
        self.look(documents)
        spoiled.damages = [each for each in spoiled.damages if each.is_there]
        for damage in spoiled.damages:
            if await self._mend(damage, str(documents[damage.site]["role"])):
                return True
        if not spoiled.damages:
            self._sites.foresee_nothing()
        return bool(spoiled.damages)

    def look(self, documents: Documents) -> None:
        """At damage that a site which answers must have read since: it counts no more, and is a find where it says nothing."""
        spoiled = self._sites.spoiled
        spoiled.damages = [each for each in spoiled.damages if each.site not in documents or not self._is_passed(each)]

    def _is_passed(self, damage: Damage) -> bool:
        """A start reads the whole WAL: what it has cut off or fetched since is whole, and what it read over is a find."""
        if damage.part != "wal" or not damage.is_there or self._sites.lives[damage.site].starts == damage.starts:
            return False
        if not damage.is_cut:
            self._sites.spoiled.unreported.append(
                f"The gateway of site {damage.site} started on {damage.path.name}, where a bit at {damage.offset:,} has turned."
            )
        return True

    async def _mend(self, damage: Damage, role: str) -> bool:
        """False: it has been done, and takes its time."""
        site = damage.site
        if damage.part in _ON_DFS:
            if damage not in self._sites.spoiled.restarted_for:
                self._sites.spoiled.restarted_for.append(damage)
                return await self._do(f"{REMOTE}: site {site}, for {damage.path.name}", self._again, site)
            return False
        if role in _SERVES:
            await self._commands.run("switchover", "--to", OTHER[site], why=f"the handbook: {STORAGE}")
        else:
            quote = WAL if damage.part == "wal" else STORAGE
            await self._do(f"{quote}: site {site}, for {damage.path.name}", self._emptied, site)
        return True

    async def _do(self, quote: str, work: Callable[..., None], *given: str) -> bool:
        self._note(f"by hand   (the handbook: {quote})")
        await asyncio.to_thread(work, *given)
        return True

    # ---- the acts
    def _newest_database(self) -> None:
        exchanged(self._sites, self._sites.spoiled.newest.pop(COORDINATOR), self._folder())

    def _without(self, site: str, name: str) -> None:
        (self._sites.data_dir(site) / name).unlink()
        self._sites.start(site)

    def _newest(self, site: str) -> str:
        return next((part for owner, part in self._sites.spoiled.newest if owner == site and part != "dfs"), "")

    def _newest_back(self, site: str) -> None:
        part = self._newest(site)
        self._sites.terminate(site)
        put_back(self._sites, site, part, self._sites.spoiled.newest.pop((site, part)), self._folder())
        self._sites.start(site)

    def _emptied(self, site: str) -> None:
        self._sites.empty(site)
        self._sites.start(site)

    def _again(self, site: str) -> None:
        if not self._sites.terminate(site):
            raise Unavailable(f"site {site} did not heed SIGTERM")
        self._sites.start(site)

    def _folder(self) -> Path:
        return Path(mkdtemp(prefix="aside-", dir=self._sites.folder))
