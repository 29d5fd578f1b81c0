"""The register of a pair without a coordinator as it changes: the files on both DFSs, past the links, as lines of the history.

What always holds: it reads, and writes nothing; each new file is read, also those that came between two looks. A look at one
DFS that hangs holds up no look at the other one, but for PATIENCE_S. A decision happened after its author wrote down its time,
and a copy says no more than that it happened after the last look at both. Openings are noted when they were seen, modes and
lines of their own (Apart) from when they may have begun: as register.py does, so that no answer looks wrong that was right.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor, wait
from itertools import groupby
from pathlib import Path
from typing import Protocol

import httpx
import msgspec

from chaos.harness.pair.changes import PostgresChanges, SqliteChanges
from chaos.harness.pair.register import RegisterWatch, lines_of
from chaos.harness.pair.sites import OTHER, SITES, RealSites
from chaos.harness.pair.watching import Watching
from chaos.history.history import Apart, Moment, Opened
from chaos.history.lines import Line
from chaos.history.registers import TwoRegisters
from gateway.demo.files import PAIR
from gateway.demo.servers import ROOT
from remote_log.layout import RemoteLayout
from storage.disk.sealed_json import unseal
from switchover.register.dfs_folder import RegisterEntry
from switchover.register.homes import rank
from switchover.register.port import PairState
from twinlog.errors import DamagedLog

POLL_S, WEB_POLL_S = 0.02, 0.05
PATIENCE_S = 0.1
WEB_S = 2.0
INITIAL_ACTIVE = "a"  # as gateway/demo/files.py has it
FOLDER = RemoteLayout(PAIR).register_folder


class RegisterFiles(Protocol):
    """The register's folder on one DFS. Raises OSError or httpx.HTTPError when it cannot be read now."""

    poll_s: float

    def names(self) -> list[str]:
        """Returns those of its files; nothing where there is no folder."""

    def content(self, name: str) -> bytes:
        """The whole of one."""


class PlainFiles:
    """RegisterFiles on a directory as DFS, at `root`."""

    poll_s = POLL_S

    def __init__(self, root: Path) -> None:
        self._folder = root / FOLDER.lstrip("/")

    def names(self) -> list[str]:
        try:
            return [path.name for path in self._folder.iterdir()]
        except FileNotFoundError:
            return []

    def content(self, name: str) -> bytes:
        return (self._folder / name).read_bytes()


class WebFiles:
    """RegisterFiles on an HDFS, by WebHDFS at `url` below the folder `root`, as `user`."""

    poll_s = WEB_POLL_S

    def __init__(self, url: str, root: str, user: str) -> None:
        self._folder = f"{url}/webhdfs/v1{root}{FOLDER}"
        self._client = httpx.Client(timeout=WEB_S, trust_env=False, follow_redirects=True, params={"user.name": user})

    def names(self) -> list[str]:
        answer = self._client.get(self._folder, params={"op": "LISTSTATUS"})
        if answer.status_code == httpx.codes.NOT_FOUND:
            return []
        return [each["pathSuffix"] for each in answer.raise_for_status().json()["FileStatuses"]["FileStatus"]]

    def content(self, name: str) -> bytes:
        return self._client.get(f"{self._folder}/{name}", params={"op": "OPEN"}).raise_for_status().content


class Look(msgspec.Struct, frozen=True):
    """One look at one DFS, begun at `from_s`: the new files, by number, and the highest number that is there (0: none)."""

    from_s: float
    highest: int
    found: tuple[tuple[int, RegisterEntry], ...]


class TwoDfsWatch(Watching):
    """As RegisterWatch. `files`: by site. `first_home`: the site on whose DFS the first value is decided."""

    def __init__(
        self, files: Mapping[str, RegisterFiles], first_home: str, now_s: Callable[[], float], note: Callable[[Line], None]
    ) -> None:
        self._files, self._first_home, self._now_s, self._note = files, first_home, now_s, note
        super().__init__()
        self._registers = TwoRegisters()
        self._looked_s = dict.fromkeys(files, now_s())
        self._opened: set[tuple[int, str | None]] = set()

    @property
    def value(self) -> PairState | None:
        return self._registers.value

    def _run(self) -> None:
        under_way: dict[str, Future[Look | None]] = {}
        poll_s = max(files.poll_s for files in self._files.values())
        with ThreadPoolExecutor(len(self._files), "register-look") as threads:
            while not self._ended.wait(poll_s):
                for site in self._files:
                    if site not in under_way:
                        under_way[site] = threads.submit(self._look, site)
                wait(under_way.values(), PATIENCE_S)
                ended = {site: look for site, look in under_way.items() if look.done()}
                try:
                    self.take({site: found for site, look in ended.items() if (found := look.result()) is not None})
                except (DamagedLog, LookupError, ValueError) as error:
                    self.error = str(error)
                    return
                for site in ended:
                    del under_way[site]

    def _look(self, site: str) -> Look | None:
        """None: it cannot be read now."""
        files, from_s = self._files[site], self._now_s()
        try:
            names = {number: name for name in files.names() if (number := RemoteLayout.parse_register(name)) is not None}
            known = self._registers.newest.get(site, (0,))[0]
            new = sorted(number for number in names if number > known)
            if known and new and new[0] != known + 1:
                raise LookupError(f"the register on site {site}'s DFS was at {known}, and is at {new} now: values were missed")
            return Look(from_s, max(names, default=0), tuple((number, self._read(files, names[number])) for number in new))
        except (OSError, httpx.HTTPError):
            return None

    @staticmethod
    def _read(files: RegisterFiles, name: str) -> RegisterEntry:
        return unseal(files.content(name), RegisterEntry, f"{FOLDER}/{name}", "")

    def take(self, looks: Mapping[str, Look]) -> None:
        """Notes the lines that these looks mean, each at the DFS of a site."""
        now_s = self._now_s()
        for site, look in looks.items():
            if look.highest < self._registers.newest.get(site, (0,))[0] and self._registers.lost(site):  # a new DFS, or none
                self._note(Moment("forgotten", now_s))
        found = [(site, *each) for site, look in looks.items() for each in look.found]
        found.sort(key=lambda each: rank(each[2].value))
        for _, alike in groupby(found, key=lambda each: rank(each[2].value)):
            home = self._home_of(self.value)
            for site, number, entry in sorted(alike, key=lambda each: each[0] != home):  # a copy does not know what came before
                for line in self._lines(site, number, entry, now_s):
                    self._note(line)
        for site, look in looks.items():
            self._looked_s[site] = look.from_s

    def _lines(self, site: str, number: int, entry: RegisterEntry, now_s: float) -> Iterator[Line]:
        value = entry.value
        met = self._registers.made(site, number, value)
        if met is None:
            return
        from_s = min(self._looked_s.values())
        if self._is_decided(site, met.before, value):
            from_s = max(self._looked_s[site], now_s - (time.time() - entry.wall_ms / 1000))
        if met.is_forced:
            yield Apart(site, from_s)
        for line in lines_of(met.before, value, from_s, now_s) if met.is_new else ():
            if isinstance(line, Opened):
                if (value.epoch, value.opened_by) in self._opened:  # heard of here together with the decision after it
                    continue
                self._opened.add((value.epoch, value.opened_by))
            yield line
        if met.is_whole:
            yield Moment("met", now_s)

    def _is_decided(self, site: str, before: PairState | None, value: PairState) -> bool:
        """Returns whether the place is that of the decision: the home, or one that a command made it."""
        forced = value.home == site and value.home_forced > (before.home_forced if before is not None else 0)
        return forced or self._home_of(before) == site

    def _home_of(self, value: PairState | None) -> str:
        return self._first_home if value is None or value.home is None else value.home


def files_of(sites: RealSites) -> Mapping[str, RegisterFiles]:
    """Those of both DFSs of a pair, past its links."""
    if sites.parts.dfs == "directory":
        return {site: PlainFiles(sites.folder / site / "dfs") for site in SITES}
    clusters = {site: hdfs.cluster for site, hdfs in sites.servers.hdfs.items()}
    return {site: WebFiles(cluster.web_url, ROOT, cluster.user) for site, cluster in clusters.items()}


def watch_of(sites: RealSites, now_s: Callable[[], float], note: Callable[[Line], None]) -> RegisterWatch | TwoDfsWatch:
    """The watch of the register of a pair, wherever that is."""
    if sites.servers.witness is not None:
        return RegisterWatch(PostgresChanges(sites.servers.witness.url), now_s, note)
    if sites.parts.coordinator == "yes":
        return RegisterWatch(SqliteChanges(sites.coordinator), now_s, note)
    return TwoDfsWatch(files_of(sites), OTHER[INITIAL_ACTIVE], now_s, note)
