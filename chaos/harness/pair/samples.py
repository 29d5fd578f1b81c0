"""Looks at both gateways while the run lasts: what each says of itself by every way there is, what the machine says of its
process, and how far its log is written at the other site.

What always holds: it asks the gateways directly, changes nothing, and a gateway that does not answer is a sample that says so.
Each site is looked at by itself, so that one that hangs does not hide the other. What is so is read after what is said.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import msgspec

from chaos.harness.pair.files.footprint import DATABASE, HDFS, Footprint, footprint
from chaos.harness.pair.files.remote_copy import RemoteCopy, remote_copy
from chaos.harness.pair.sites import SITES, RealSites
from chaos.history.history import Ack
from chaos.history.lines import Line, ReceiptLine
from gateway.demo.files import PAIR
from gateway.service.conditions import REFUSALS_BYTES_MAX
from gateway.service.receipts import encode_receipt
from storage.engines.rocks.opening import RocksSettings
from storage.log.wal import DEFAULTS
from twinlog.errors import PeerError, TwinlogError

SAMPLE_S = 0.5
SOON_S = 0.15  # between two looks, right after something has happened
SOON_FOR_S = 1.5
DISKS_EVERY_S = 4.0
FRESH_S = 1.0
_ROCKS = RocksSettings()
CACHES: Mapping[str, int] = {  # metrics of what fills with the work, in bytes, and the most that each can be
    "engine_cache_bytes": _ROCKS.block_cache_bytes,
    "engine_memtable_bytes": _ROCKS.write_buffer_bytes * _ROCKS.write_buffers_max,
    "wal_tail_bytes": DEFAULTS.tail_bytes_max,
    "refusals_bytes": REFUSALS_BYTES_MAX,
}
ANSWERS = ("down", "paused", "silent")  # roles of a site that says nothing


class Sample(msgspec.Struct, frozen=True, omit_defaults=True):
    """One look at one site, asked for at `at_s` and answered by `told_s`. `role`: as it says, or one of ANSWERS. None: unknown.

    `fresh_seq`: what a standby had applied right after it said that it is at most FRESH_S behind. `there`: what its remote log
    holds of this active's epoch, read from the files after the answer.
    `otherwise`: what health and metrics said at the same moment, where it is not what the status says.
    `caches`: what it says of CACHES.
    """

    site: str
    at_s: float
    role: str
    epoch: int | None = None
    mode: str | None = None
    committed: int | None = None
    applied: int | None = None
    durable: int | None = None
    lag_records: int | None = None
    at_risk: int | None = None
    at_risk_exact: bool | None = None
    remote_log_bytes: int | None = None
    remote_log_segments: int | None = None
    reads: bool | None = None
    writes: bool | None = None
    follows: bool | None = None
    why: str = ""  # it does not do all that its role is for
    waiting_for: str = ""
    troubles: tuple[str, ...] = ()
    told_s: float = 0.0
    there: RemoteCopy | None = None
    otherwise: tuple[str, ...] = ()
    held: Footprint | None = None
    caches: Mapping[str, int] = {}
    fresh_seq: int | None = None

    @property
    def written_there(self) -> int | None:
        """The last sequence of its epoch in its remote log."""
        return None if self.there is None else self.there.last_seq

    @property
    def serves(self) -> bool:
        """Reads or writes, as the active."""
        return bool(self.reads or self.writes)


class Sampler:
    """`acknowledged`: an acknowledgement of now, with its call, to ask for; `note` takes what a site says of its receipt."""

    def __init__(
        self, sites: RealSites, now_s: Callable[[], float], acknowledged: Callable[[], tuple[int, Ack] | None],
        note: Callable[[Line], None],
    ) -> None:
        self._sites, self._now_s, self._acknowledged, self._note = sites, now_s, acknowledged, note
        self._soon_until_s = 0.0
        self._servers = {
            int(address.rpartition(":")[2]): DATABASE if ">pg-" in link else HDFS
            for link, address in sites.links.items() if any(each in link for each in (">pg-", ">nn-", ">dn-"))
        }
        self._disks_s = dict.fromkeys(SITES, -DISKS_EVERY_S)
        self.samples: list[Sample] = []

    async def keep(self) -> None:
        """Takes samples until it is cancelled."""
        await asyncio.gather(*(self._keep(site) for site in SITES))

    async def _keep(self, site: str) -> None:
        while True:
            self.samples.append(await asyncio.to_thread(self.look, site))
            await asyncio.sleep(SOON_S if self._now_s() < self._soon_until_s else SAMPLE_S)

    def look_soon(self) -> None:
        """Something happens now: more looks for a while."""
        self._soon_until_s = self._now_s() + SOON_FOR_S

    def look(self, site: str, *, disks: bool = False) -> Sample:
        """`disks`: look at its files in any case."""
        at_s, pid = self._now_s(), self._sites.pid(site)
        held = None if pid is None else self._footprint(site, pid, at_s, disks)
        if held is None:
            return Sample(site, at_s, "down", told_s=at_s)
        if self._sites.is_paused(site):
            return Sample(site, at_s, "paused", told_s=at_s, held=held)
        direct = self._sites.direct
        try:
            before = direct.ask(site, "GET", "/v1/cluster")
            told_s = self._now_s()
            figures, healths = direct.metrics(site), {each: self._is_healthy(site, each) for each in ("primary", "ready")}
            is_fresh = before["role"] == "STANDBY" and self._is_healthy(site, f"standby?lag={FRESH_S:g}")
            said = self._ask_receipt(site)
            after = direct.ask(site, "GET", "/v1/cluster")
        except TwinlogError:
            return Sample(site, at_s, "silent", told_s=self._now_s(), held=held)
        if said is not None:
            self._note(msgspec.structs.replace(said, held_seq=max(before["applied_seq"], after["applied_seq"])))
        there = None
        if before["role"] in ("ACTIVE", "DOWNGRADE_ACTIVE") and self._sites.parts.dfs == "directory":
            there = remote_copy(self._sites.folder, PAIR, site, before["epoch"])
        of_this_release = self._sites.lives[site].tree is None  # another one's metrics may have other names
        otherwise = contradictions(before, after, figures, healths) if of_this_release else ()
        sample = msgspec.structs.replace(
            sample_of(site, at_s, told_s, before, there, otherwise, held),
            caches={name: int(figures[f"twinlog_{name}"]) for name in CACHES if f"twinlog_{name}" in figures},
        )
        return msgspec.structs.replace(sample, fresh_seq=after["applied_seq"]) if is_fresh else sample

    def _is_healthy(self, site: str, which: str) -> bool:
        """Raises PeerError when nothing answers."""
        try:
            self._sites.direct.ask(site, "GET", f"/health/{which}")
        except PeerError:
            raise
        except TwinlogError:
            return False
        return True

    def _ask_receipt(self, site: str) -> ReceiptLine | None:
        chosen = self._acknowledged()
        if chosen is None:
            return None
        call, ack = chosen
        receipt = encode_receipt(0, ack.epoch, ack.seq, ack.mode)
        said = self._sites.direct.ask(site, "GET", f"/v1/receipts/{receipt}")
        return ReceiptLine(call, site, said["outcome"], self._now_s())

    def _footprint(self, site: str, pid: int, at_s: float, disks: bool) -> Footprint | None:
        disks = disks or at_s - self._disks_s[site] >= DISKS_EVERY_S
        if disks:
            self._disks_s[site] = at_s
        data_dir, dfs = self._sites.data_dir(site), self._sites.folder / site / "dfs"
        return footprint(pid, data_dir, dfs, disks=disks, servers=self._servers)


def sample_of(
    site: str, at_s: float, told_s: float, document: Mapping[str, Any], there: RemoteCopy | None = None,
    otherwise: tuple[str, ...] = (), held: Footprint | None = None,
) -> Sample:
    lag, risk, log = (document.get(name) or {} for name in ("replication_lag", "at_risk", "remote_log"))
    serving, troubles = document["serving"], tuple(f"{each['about']}: {each['seen']}" for each in document["troubles"])
    return Sample(
        site, at_s, document["role"], document["epoch"], document["mode"], document["committed_seq"], document["applied_seq"],
        document["durable_seq"], lag.get("records"), risk.get("records"), risk.get("exact"), log.get("bytes"),
        log.get("segments"), serving["reads"], serving["writes"], serving["follows"], serving["why"] or "",
        document["waiting_for"] or "", troubles, told_s, there, otherwise, held,
    )


def contradictions(
    before: Mapping[str, Any], after: Mapping[str, Any], figures: Mapping[str, float], healths: Mapping[str, bool]
) -> tuple[str, ...]:
    """Returns where health and metrics differ from the status, which was the same before and after them."""
    serving = before["serving"]
    found = []
    if serving == after["serving"]:
        if healths["primary"] != serving["writes"]:
            found.append(f"/health/primary says {healths['primary']}, and the status {_words(serving)}")
        if healths["ready"] != (serving["reads"] or serving["follows"]):
            found.append(f"/health/ready says {healths['ready']}, and the status {_words(serving)}")
    role = before["role"]
    if role == after["role"] and figures.get(f'twinlog_role{{role="{role}"}}') != 1:
        found.append(f"the metric twinlog_role is not {role}, as by the status")
    for name, of in _SAME.items():
        first, last, shown = of(before), of(after), figures.get(f"twinlog_{name}")
        if first == last and shown != first:
            found.append(f"the metric twinlog_{name} is {shown}, and by the status {first}")
    if before["epoch"] == after["epoch"]:
        for name in ("applied_seq", "committed_seq"):
            shown, low, high = figures.get(f"twinlog_{name}"), before[name], after[name]
            if shown is not None and low <= high and not low <= shown <= high:
                found.append(f"the metric twinlog_{name} is {shown:.0f}, and by the status {low} to {high}")
        is_known = [document["replication_lag"] is not None for document in (before, after)]
        if all(is_known) != ("twinlog_replication_lag_records" in figures) and is_known[0] == is_known[1]:
            found.append("one of the metric twinlog_replication_lag_records and the lag of the status is unknown alone")
    return tuple(found)


_SAME: Mapping[str, Callable[[Mapping[str, Any]], float | None]] = {
    "epoch": lambda document: float(document["epoch"]),
    "troubles": lambda document: float(len(document["troubles"])),
    "serves_reads": lambda document: float(document["serving"]["reads"]),
    "serves_writes": lambda document: float(document["serving"]["writes"]),
    "follows": lambda document: float(document["serving"]["follows"]),
    "mode_sync": lambda document: float(document["mode"] == "sync") if document["serving"]["writes"] else None,
}


def _words(serving: Mapping[str, Any]) -> str:
    return ", ".join(f"{name}: {serving[name]}" for name in ("reads", "writes", "follows"))
