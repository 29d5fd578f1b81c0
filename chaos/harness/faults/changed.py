"""A site is started otherwise than it should be: with a wrong value in its configuration, or by the gateway of another commit.

What always holds: the site is stopped by SIGTERM before and after; its own file is never touched, for the wrong one lies beside
it; a gateway that ends by itself at such a start has refused, and has to say why. What a site does that runs all the same is
judged like everything else. A release that a plan names at second 0 is that of the site's first start: a gateway need not be
able to read what a later one has written.
"""

from __future__ import annotations

import asyncio
import re
import subprocess
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import mkdtemp

from chaos.fault_lines import Fault
from chaos.harness.faults.kind import NO_ACTIVE, SITE_TARGETS, Kind, Stage
from chaos.harness.pair.sites import OTHER, SITES, RealSites
from twinlog.errors import InvalidInput, TwinlogError, Unavailable

TREE = Path(__file__).resolve().parents[3]
CONFIG, TREE_OF = "wrong-config", "release"
BEFORE = "61bca8db"  # there is no release yet: the last commit of 2026-11-23
_COMMIT = re.compile(r"[0-9a-f]{7,40}")


def _key(key: str, value: str, section: str = "") -> Callable[[str, str, RealSites], str]:
    """The value of `key` in `[section]`, above all sections without one. `{own}`, `{peer}` stand for sites, `{own_port}`,
    `{peer_port}` for ports."""
    within = rf"^\[{re.escape(section)}\]\n" if section else r"\A"
    begin = rf"(?ms)({within}(?:(?!^\[).)*?^{key} = )[^\n]*"

    def write(text: str, site: str, sites: RealSites) -> str:
        peer = OTHER[site]
        told = value.format(own=site, peer=peer, own_port=sites.ports[site], peer_port=sites.ports[peer], folder=sites.folder)
        written, count = re.subn(begin, lambda found: found[1] + told, text, count=1)
        if count != 1:
            raise Unavailable(f"site {site}'s file has no {key} in [{section}] that could be wrong")
        return written

    return write


def _all(*steps: Callable[[str, str, RealSites], str]) -> Callable[[str, str, RealSites], str]:
    def write(text: str, site: str, sites: RealSites) -> str:
        for step in steps:
            text = step(text, site, sites)
        return text

    return write


_claims_the_other = _all(_key("site", '"{peer}"'), _key("site", '"{own}"', "peer"))
WRONG: Mapping[str, Callable[[str, str, RealSites], str]] = {
    "peer-is-itself": _key("url", '"http://127.0.0.1:{own_port}"', "peer"),
    "pair": _key("pair", '"other"'),
    "site": _claims_the_other,
    "site-anew": _all(_claims_the_other, _key("data_dir", '"data-anew"')),
    "dfs-swapped": _all(_key("path", '"../{peer}/dfs"', "dfs.own"), _key("path", '"dfs"', "dfs.peer")),
    "dfs-own-twice": _key("path", '"dfs"', "dfs.peer"),
    "engine": _key("kind", '"sqlite"', "engine"),
    "data-dir": _key("data_dir", '"../{peer}/data"'),
    "port": _key("port", "{peer_port}", "http"),
    "coordinator": _key("url", '"sqlite:///{folder}/{own}/other-coordinator.db"', "coordinator"),
    "policy": _key("policy", '"performance"'),
}


@dataclass
class Otherwise:
    """The site is chosen when the fault begins."""

    stage: Stage
    fault: Fault
    site: str = ""

    async def why_not(self) -> str:
        site = self.stage.site(self.fault.target)
        if site is None:
            return NO_ACTIVE
        life = self.stage.sites.lives[site]
        if life.config is not None or (life.tree is not None and self.fault.at_s > 0):
            return f"site {site} is started otherwise already"
        return f"site {site} is paused" if life.paused else ""

    async def inject(self) -> str:
        self.site = str(self.stage.site(self.fault.target))
        return await asyncio.to_thread(self._begin)

    async def heal(self) -> str:
        return await asyncio.to_thread(self._end)

    def _begin(self) -> str:
        sites, life = self.stage.sites, self.stage.sites.lives[self.site]
        if self.fault.kind == CONFIG:
            right = sites.folder / self.site / "site.toml"
            wrong = right.with_name("wrong.toml")
            wrong.write_text(WRONG[self.fault.how](right.read_text(encoding="utf-8"), self.site, sites), encoding="utf-8")
            changed: tuple[Path | None, Path | None] = (wrong, None)
        elif life.tree is not None:
            return f"site {self.site} was started so"
        else:
            changed = (None, exported(self.fault.how, sites.folder))
        sites.terminate(self.site)
        life.config, life.tree = changed
        life.may_refuse = True
        refused = sites.start_and_hear(self.site)
        return f"site {self.site} " + (f"refused: {refused}" if refused else f"runs: {self._says()}")

    def _end(self) -> str:
        sites, life = self.stage.sites, self.stage.sites.lives[self.site]
        said = "" if sites.refusal(self.site) else f"before that {self._says()}"
        sites.terminate(self.site)
        life.config = life.tree = None
        refused = sites.start_and_hear(self.site)
        return "; ".join(filter(None, (said, refused and f"refused: {refused}")))

    def _says(self) -> str:
        """The site in a line, by its own word."""
        try:
            document = self.stage.sites.direct.ask(self.site, "GET", "/v1/cluster")
        except TwinlogError as error:
            return error.message
        troubles = [f"{trouble['about']}: {trouble['seen']}" for trouble in document["troubles"]]
        told = [document["waiting_for"], document["serving"]["why"], *troubles]
        return ": ".join([str(document["role"]), *dict.fromkeys(filter(None, told))])


def begin_with(faults: Iterable[Fault], sites: RealSites) -> None:
    """Chooses the trees of the first starts. Raises Unavailable."""
    for fault in faults:
        if fault.kind == TREE_OF and fault.at_s == 0 and fault.target in SITES:
            sites.lives[fault.target].tree = exported(fault.how, sites.folder)


def exported(commit: str, folder: Path) -> Path:
    """The source tree of `commit` in a new folder. Raises Unavailable where this repository does not have it."""
    into = Path(mkdtemp(prefix=f"release-{commit}-", dir=folder))
    packed = into.with_suffix(".tar")
    commands = (["git", "archive", "--output", str(packed), commit], ["tar", "-xf", str(packed), "-C", str(into)])
    for words in commands:
        done = subprocess.run(words, cwd=TREE, capture_output=True, text=True, check=False)
        if done.returncode:
            raise Unavailable(
                f"the gateway of commit {commit} cannot be had: {done.stderr.strip()};"
                " a shallow clone needs `git fetch --unshallow`"
            )
    packed.unlink()
    return into


def _commit(fault: Fault) -> None:
    if not _COMMIT.fullmatch(fault.how):
        raise InvalidInput(f"`how` of {TREE_OF} is a commit, 7 to 40 digits hex, as {BEFORE}")


def _effect(fault: Fault, stage: Stage) -> Otherwise:
    return Otherwise(stage, fault)


KINDS = (
    Kind(CONFIG, SITE_TARGETS, f"started with a wrong `how`: {', '.join(WRONG)}", _effect, how=tuple(WRONG)),
    Kind(TREE_OF, SITE_TARGETS, f"started by the gateway of commit `how`, as {BEFORE}", _effect, how=(BEFORE,), check=_commit),
)
