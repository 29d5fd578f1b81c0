"""The parts of the write path, each with its state in a word: client, gateway, both logs, both storages, shipping, register.

What always holds: the states are those that the sites report of themselves; where the active does not answer they are unknown,
except what the other site says of its own.
"""

from __future__ import annotations

from dataclasses import dataclass

from gateway.service.documents import ClusterDocument
from gateway.ui import words
from gateway.ui.looks import SiteLook
from gateway.ui.rates import Latency, SiteRates
from gateway.ui.watch import PairSeen, Side


@dataclass(frozen=True, slots=True)
class Node:
    """`level`: ok, warn, bad, off or unknown; `word` says it without colour."""

    title: str
    level: str
    word: str
    figure: str = ""


_SHIPPING = {
    "following": ("ok", "follows"), "loading": ("warn", "is filled"), "diverged": ("bad", "diverged"),
    "busy": ("warn", "is busy"), "refused": ("bad", "refuses"), "unreachable": ("bad", "unreachable"),
}
_NONE = SiteRates(1.0)


def write_path(seen: PairSeen, active: str | None, *, is_advised: bool) -> dict[str, Node]:
    """The parts by name. `is_advised`: figures are shown, too. Without an active nothing is written, and all is off."""
    side = seen.sides.get(str(active), Side())
    other = seen.sides[_other_of(seen, active)]
    look, found = side.look, (side.rates if is_advised else None) or _NONE
    return {
        "client": _client(look, found, is_measured=is_advised), "gateway": _gateway(look, active), "wal": _wal(look, found),
        "remote": _remote(look, found), "storage": _storage(look, found.applies, "storage"),
        "shipping": _shipping(look, _other_of(seen, active)), "copy": _storage(other.look, Latency(0), "storage"),
        "register": _register(look or other.look),
    }


def _other_of(seen: PairSeen, active: str | None) -> str:
    return seen.other if active in (None, seen.site) else seen.site


def _client(look: SiteLook | None, found: SiteRates, *, is_measured: bool) -> Node:
    figure = f"{words.rate(found.writes)} writes/s" if is_measured and found.writes is not None else ""
    if look is None:
        return Node("clients", "unknown", "unknown")
    serving = look.cluster.serving
    if serving.writes:
        return Node("clients", "ok", "served", figure)
    return Node("clients", "bad", "reads only" if serving.reads else "not served", figure)


def _gateway(look: SiteLook | None, active: str | None) -> Node:
    if active is None:
        return Node("no active", "off", "nobody serves")
    if look is None:
        return Node(f"gateway {active}", "bad", "does not answer")
    cluster = look.cluster
    level = "bad" if cluster.serving.why else "ok" if cluster.role == "ACTIVE" else "warn"
    return Node(f"gateway {active}", level, str(cluster.role), f"epoch {cluster.epoch}")


def _error(cluster: ClusterDocument, name: str) -> str | None:
    one = cluster.dependencies.get(name)
    return None if one is None else one.error


def _has_epoch(look: SiteLook) -> bool:
    return str(look.cluster.role) in ("ACTIVE", "DOWNGRADE_ACTIVE", "DRAINING")


def _wal(look: SiteLook | None, found: SiteRates) -> Node:
    if look is None:
        return Node("WAL", "unknown", "unknown")
    if _error(look.cluster, "local log") is not None:
        return Node("WAL", "bad", "takes nothing")
    if not _has_epoch(look):
        return Node("WAL", "off", "not written")
    return Node("WAL", "ok", "synced", _p50(found.local))


def _remote(look: SiteLook | None, found: SiteRates) -> Node:
    if look is None:
        return Node("remote log", "unknown", "unknown")
    remote, detail = look.cluster.remote_log, look.cluster.mode_detail
    if not _has_epoch(look):
        return Node("remote log", "off", "not written")
    if remote is None or (detail is not None and detail.value == "async"):
        return Node("remote log", "warn", "not written: async")
    figure = f"{_p50(found.remote)} · {words.size(remote.bytes)}".removeprefix(" · ")
    if remote.trouble:
        return Node("remote log", "bad", "takes nothing", words.size(remote.bytes))
    if look.cluster.mode == "async":
        return Node("remote log", "warn", "catches up", figure)
    return Node("remote log", "ok", "synced", figure)


def _storage(look: SiteLook | None, found: Latency, title: str) -> Node:
    if look is None:
        return Node(title, "unknown", "unknown")
    if _error(look.cluster, "storage") is not None:
        return Node(title, "bad", "failed", f"at {look.cluster.applied_seq:,}")
    return Node(title, "ok", "applied", _p50(found) or f"at {look.cluster.applied_seq:,}")


def _shipping(look: SiteLook | None, other: str) -> Node:
    if look is None:
        return Node("shipping", "unknown", "unknown")
    if not _has_epoch(look):
        return Node("shipping", "off", "stopped")
    document = look.cluster.sites.get(other)
    state = document.state if document is not None else "unknown"
    level, word = _SHIPPING.get(str(state), ("unknown", "unknown"))
    lag = look.cluster.replication_lag
    figure = f"lag {lag.records:,}" if lag is not None else ""
    return Node("shipping", level, word, figure)


def _register(look: SiteLook | None) -> Node:
    if look is None:
        return Node("register", "unknown", "unknown")
    for name in ("coordinator", "register"):
        if _error(look.cluster, name) is not None:
            return Node("register", "bad", "out of reach")
    one = look.cluster.dependencies.get("coordinator")
    if one is None or one.answered_ago_s is None:
        return Node("register", "unknown", "not asked yet")
    return Node("register", "ok", "answers")


def _p50(found: Latency) -> str:
    return f"p50 {words.latency(found.p50_s)}" if found.count else ""
