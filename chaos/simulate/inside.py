"""Looks inside a site for what it says nowhere: state that is wrong at any moment, or left over once a pair is at rest.

What always holds: a look changes nothing and draws nothing; each sentence names the site and what is wrong there.
"""

from __future__ import annotations

from collections.abc import Collection

from chaos.simulate.twins.dfs import SimDfsCluster
from chaos.simulate.twins.process import Process
from gateway.epoch.active_epoch import ActiveEpoch
from gateway.site.site import Site
from remote_log.replication.sink import FOLLOWED_EPOCH
from remote_log.writing.writer import RemoteWriter

SERVES = ("ACTIVE", "DOWNGRADE_ACTIVE")
WENT_BACK = "went back to an earlier state"


class KeptSegments:
    """The kinds of segments that a writer of a remote log had at the look before, and keeps while it lives (trimmer.py)."""

    def __init__(self) -> None:
        self._writer: RemoteWriter | None = None
        self._had = (False, False)

    def lost(self, site: str, writer: RemoteWriter | None) -> list[str]:
        """Returns what this writer had and has no more."""
        begun = [segment for segment in writer.segments if segment.begun] if writer is not None else []
        has = (bool(begun), any(segment.last_seq >= segment.first_seq for segment in begun))
        had = self._had if writer is self._writer else (False, False)
        self._writer, self._had = writer, has
        names = ("header", "frame")
        return [
            f"The remote log of site {site} has no segment with a {name} any more, while its writer lives."
            for name, before, now in zip(names, had, has, strict=True) if before and not now
        ]


class EndedEpochs:
    """The epochs that a site had open at earlier looks, and has no more."""

    def __init__(self) -> None:
        self._open: ActiveEpoch | None = None
        self._ended: list[ActiveEpoch] = []

    def alive_still(self, site: Site, there: SimDfsCluster, is_rotten: bool) -> list[str]:
        """Returns what an ended epoch does all the same, and the wrong reason why it ended. `there`: the DFS of the other
        site."""
        epoch = site.active_epoch
        if self._open is not None and self._open is not epoch:
            self._ended = [*self._ended[-3:], self._open]
        self._open, now_s, found = epoch, site.parts.clock.monotonic_s(), list[str]()
        for ended in self._ended:
            if ended.parts is not site.parts or ended.modes.ended is None:
                continue  # of a process that is gone, or it ends right now
            if ended.lease.valid_at(now_s):
                found.append(f"Site {site.site} has ended epoch {ended.epoch}, and it proves that it is the active.")
            if WENT_BACK in ended.modes.ended.message and not (there.turned_back or is_rotten):
                found.append(f"Site {site.site} ended epoch {ended.epoch} for a DFS that went back, and it never did.")
        return found


def left_resync(process: Process, kind: str | None) -> list[str]:
    """Returns a resync by command that continues although no operation asks for it. `kind`: of the operation that runs."""
    if kind == "resync":
        return []
    name = Site.resync.__qualname__
    is_left = any(task.get_coro().__qualname__ == name and not task.done() for task in process.tasks)  # type: ignore[union-attr]
    return [f"A resync continues in {process.name}, and no operation asks for it."] if is_left else []


def wrong_inside(site: Site, running: str | None, journaled: Collection[str]) -> list[str]:
    """Returns what must not be so at any moment. `running`: the operation that runs there, `journaled` those in its journal."""
    found: list[str] = []
    durable = int(site.parts.engine.meta(FOLLOWED_EPOCH) or b"0")
    if site.sink.followed_epoch > durable:
        found.append(f"Site {site.site} follows epoch {site.sink.followed_epoch}, and its storage notes {durable}.")
    if running is not None and running not in journaled:
        found.append(f"Operation {running} runs at site {site.site}, and its journal has nothing of it.")
    if site.role in SERVES and site.sink.as_of_s is not None:
        found.append(f"Site {site.site} is {site.role}, and its storage still has the age of a standby's.")
    return found


def left_inside(site: Site) -> list[str]:
    """Returns what is still there although the pair is healthy, holds everything, and nothing is under way."""
    epoch = site.active_epoch
    if epoch is None:
        return []
    said = {
        "an append of the remote log aside, which nobody has confirmed": epoch.lease.aside_s is not None,
        "a writer of the remote log in the making": epoch.modes.making_remote,
        "a degrade that waits": epoch.modes.degrades_waiting > 0,
        "a change of mode that is not settled": epoch.modes.unsettled,
    }
    return [f"Site {site.site} is at rest, and has {what}." for what, is_there in said.items() if is_there]
