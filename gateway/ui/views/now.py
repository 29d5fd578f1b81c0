"""The view *Now*: both sites, the write path between them, and what is at risk, made of one look at the pair.

What always holds: whatever is not known is called unknown; each part of the write path has a word beside its colour; no figure
here is computed otherwise than the metrics and the cluster document have it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from gateway.service.documents import ClusterDocument
from gateway.site.serving_judgement import LOCAL_LOG, PEER, PEER_DFS, WAY
from gateway.ui import words
from gateway.ui.looks import SiteLook
from gateway.ui.rates import Latency
from gateway.ui.views.picture import Curve, Picture, curve, picture
from gateway.ui.views.verdict import VerdictLine, verdict
from gateway.ui.views.write_path import Node, write_path
from gateway.ui.watch import PairSeen, Side
from switchover.monitor.findings import OTHER, AdviceKind
from twinlog.cli.status import blockers, leading, notices
from twinlog.errors import PeerError, TwinlogError


@dataclass(frozen=True, slots=True)
class Tile:
    """One figure. `level`: ok, warn, bad or unknown where it is a judgement, else empty."""

    title: str
    value: str
    note: str = ""
    level: str = ""


@dataclass(frozen=True, slots=True)
class Dependency:
    name: str
    level: str
    word: str


@dataclass(frozen=True, slots=True)
class SiteColumn:
    """One site. Of one that does not answer: `silence` says since when, and `facts` are those of its last answer."""

    site: str
    is_own: bool
    role: str
    level: str
    does: str
    url: str
    facts: tuple[tuple[str, str], ...]
    dependencies: tuple[Dependency, ...]
    waits: str = ""
    silence: str = ""


@dataclass(frozen=True, slots=True)
class NowPage:
    pair: str
    active: str | None
    epoch: str
    mode: str
    mode_level: str
    mode_note: str
    policy: str
    verdict: VerdictLine
    unwritten: str
    wide: Picture
    narrow: Picture
    told: str
    tiles: tuple[Tile, ...]
    curve: Curve
    columns: tuple[SiteColumn, ...]
    blockers: tuple[str, ...]
    notices: tuple[str, ...]
    also: tuple[str, ...]
    faults: tuple[str, ...]
    failing: tuple[str, ...]  # what each site says of that which does not answer it
    seen: str


def now_page(seen: PairSeen, *, is_advised: bool) -> NowPage:
    """`is_advised`: whoever looks may see the advice and the figures (docs/security.md)."""
    documents = {site: _answer(side) for site, side in sorted(seen.sides.items())}
    known = {site: one for site, one in documents.items() if isinstance(one, Mapping)}
    best = leading(known)
    lead = seen.sides[str(best["site"])].look
    assert lead is not None
    cluster, active = lead.cluster, lead.cluster.active.site if lead.cluster.active is not None else None
    found, told = blockers(documents), [text for text in notices(known)]
    said = verdict(seen.advice, found, seen.operation, is_advised=is_advised)
    nodes = write_path(seen, active, is_advised=is_advised)
    mode, level, note = _mode(cluster)
    return NowPage(
        pair=cluster.pair, active=active, epoch=words.number(cluster.active.epoch) if cluster.active else words.UNKNOWN,
        mode=mode, mode_level=level, mode_note=note, policy=cluster.policy, verdict=said,
        unwritten=words.duration(round(seen.unwritten_s, 1)) if seen.unwritten_s > 0.3 else "",
        wide=picture(nodes, active, is_wide=True), narrow=picture(nodes, active, is_wide=False), told=_told(nodes),
        tiles=_tiles(seen, cluster, active, is_advised=is_advised), curve=curve(seen.curve),
        columns=tuple(_column(seen, site, cluster) for site in sorted(seen.sides)),
        blockers=tuple(text for text in found if text != said.headline), notices=tuple(told),
        also=seen.advice.also if is_advised and seen.advice is not None else (), faults=seen.faults,
        failing=tuple(_failing(seen)),
        seen=words.moment(seen.own.cluster.now_ms),
    )


def _answer(side: Side) -> Mapping[str, Any] | Exception:
    if side.look is not None:
        built: Mapping[str, Any] = msgspec.to_builtins(side.look.cluster)
        return built
    return TwinlogError(side.error) if side.is_refusal else PeerError(side.error)


def _mode(cluster: ClusterDocument) -> tuple[str, str, str]:
    """The mode in effect, how it is to be judged, and what it means beside the policy."""
    if cluster.mode == "sync":
        return "sync", "ok", "each write is in both logs before it is acknowledged"
    if cluster.mode != "async":
        return words.UNKNOWN, "unknown", "no site has read it from the register"
    if cluster.policy == "performance":
        return "async", "warn", "by choice: a write is in one log when it is acknowledged"
    detail = cluster.mode_detail.value if cluster.mode_detail is not None else ""
    if detail in ("catching", "tightening"):
        return "async", "warn", "on the way back to sync: the other log catches up"
    return "async", "bad", "degraded: a write is in one log when it is acknowledged"


def _told(nodes: Mapping[str, Node]) -> str:
    """The picture in a sentence, for whoever does not see it."""
    return "The write path. " + " ".join(
        f"{node.title}: {node.word}{', ' + node.figure if node.figure else ''}." for node in nodes.values()
    )


# ---- figures
def _tiles(seen: PairSeen, cluster: ClusterDocument, active: str | None, *, is_advised: bool) -> tuple[Tile, ...]:
    side = seen.sides.get(str(active))
    made = list(_measured(side)) if is_advised else []
    lag, remote, risk = cluster.replication_lag, cluster.remote_log, cluster.at_risk
    silent = "no active answers" if side is None or side.look is None else ""
    lag_note = silent or "the active does not know it"
    if lag is not None:
        lag_s = side.look.figures.get("replication_lag_seconds") if side is not None and side.look is not None else None
        lag_note = f"sampled {words.age(lag.sample_age_s)}" if lag_s is None else f"at most {words.duration(round(lag_s, 1))}"
        if is_advised and side is not None and side.rates is not None and side.rates.shipped_bytes is not None:
            lag_note += f", {words.size(round(side.rates.shipped_bytes))}/s shipped"
    made.append(Tile("standby lags by", words.number(lag.records if lag else None, "records"), lag_note,
                     "" if lag is not None else "unknown"))
    made.append(Tile(
        "remote log holds", words.size(remote.bytes if remote else None),
        f"{words.number(remote.segments, 'segments')}, {words.number(remote.unsynced_frames)} frames under way" if remote else
        silent or "nobody writes it", "unknown" if remote is None else "bad" if remote.trouble else "",
    ))
    advice = seen.advice if is_advised and side is not None and side.look is None else None
    if advice is not None and advice.kind is AdviceKind.FAILOVER:  # no other one is advised
        made.append(Tile("at risk now", "0 records", f"by the checks of site {advice.site}", "ok"))
    elif risk is None or risk.records is None:
        made.append(Tile("at risk now", words.UNKNOWN, "if the active is lost", "unknown"))
    else:
        level = "ok" if risk.records == 0 and risk.exact else "bad" if risk.records else "warn"
        made.append(Tile("at risk now", words.number(risk.records, "records"),
                         "if the active is lost" + ("" if risk.exact else ", at least"), level))
    return tuple(made)


_MEASURED = ("writes a second", "errors a second", "acknowledged in", "local log", "remote log")


def _measured(side: Side | None) -> tuple[Tile, ...]:
    found = side.rates if side is not None else None
    if found is None:  # as many tiles as later, so that nothing moves
        is_first = side is not None and side.look is not None
        value, note = ("not yet", "the next look measures it") if is_first else (words.UNKNOWN, "no active answers")
        level = "" if is_first else "unknown"
        return tuple(Tile(title, value, note, level) for title in _MEASURED)
    over = f"over {words.duration(round(found.over_s))}".replace(".0 s", " s")
    failed = (found.failed or 0.0)
    writes, errors, acks, local, remote = _MEASURED
    return (
        Tile(writes, words.rate(found.writes), f"{words.rate(found.reads)} reads, {over}"),
        Tile(errors, words.rate(found.failed), f"{words.rate(found.refused)} refused", "bad" if failed else "ok"),
        Tile(acks, words.latency(found.acks.p50_s), _slowest(found.acks)),
        Tile(local, words.latency(found.local.p50_s), _slowest(found.local)),
        Tile(remote, words.latency(found.remote.p50_s), _slowest(found.remote)),
    )


def _slowest(found: Latency) -> str:
    return f"p50; p99 {words.latency(found.p99_s)}" if found.count else "no calls were measured"


# ---- sites
def _column(seen: PairSeen, site: str, best: ClusterDocument) -> SiteColumn:
    side, url = seen.sides[site], best.sites[site].url if site in best.sites else ""
    if side.look is not None:
        cluster = side.look.cluster
        return SiteColumn(
            site, site == seen.site, str(cluster.role), role_level(cluster), _does(cluster), url, _facts(side.look),
            tuple(_dependencies(cluster)), cluster.waiting_for or "",
        )
    word, then = "refuses to say" if side.is_refusal else "does not answer", "It has not answered since this page looks."
    if side.seen_s is not None and side.last is not None:
        ago = seen.at_s - side.seen_s
        when = "a moment ago" if ago < 2 else words.age(ago)
        then = f"It last answered {when}, as {side.last.cluster.role}: the figures here are from then."
    unknown = tuple(
        Dependency(one.name, "unknown", words.UNKNOWN) for one in _dependencies(side.last.cluster)
    ) if side.last is not None else ()
    return SiteColumn(
        site, False, words.UNKNOWN, "bad", word, url, _facts(side.last) if side.last is not None else (), unknown, silence=then,
    )


def role_level(cluster: ClusterDocument) -> str:
    serving = cluster.serving
    if serving.why or cluster.role in ("FENCED", "CLOSED"):
        return "bad"
    if cluster.role in ("DOWNGRADE_ACTIVE", "DRAINING", "SWITCHING"):
        return "warn"
    return "ok" if serving.writes or serving.follows else "warn"


def _does(cluster: ClusterDocument) -> str:
    serving = cluster.serving
    can = [text for holds, text in (
        (serving.writes, "takes writes"), (serving.reads, "answers reads"), (serving.follows, "follows the active"),
    ) if holds]
    return " and ".join(can) or "serves nobody"


def _facts(look: SiteLook) -> tuple[tuple[str, str], ...]:
    cluster, figures = look.cluster, look.figures
    facts = [
        ("epoch", words.number(cluster.epoch)), ("committed", words.number(cluster.committed_seq)),
        ("applied", words.number(cluster.applied_seq)), ("storage flushed to", words.number(cluster.durable_seq)),
        ("WAL holds", words.size(figures.get("wal_bytes"))), ("storage on disk", words.size(figures.get("engine_disk_bytes"))),
        ("disk free", words.size(figures.get("disk_free_bytes"))),
    ]
    proved = figures.get("lease_proof_age_seconds")
    facts.append(("lease proved", "has none" if proved is None else words.age(proved)))
    facts.append(("release", cluster.release))
    return tuple(facts)


HEARD_S = 10.0  # whatever a site asks for is asked again sooner


def _dependencies(cluster: ClusterDocument) -> list[Dependency]:
    """In the order of the alphabet. What was not heard of for a while is not called well."""
    made = []
    for about, one in cluster.dependencies.items():
        name = _dependency_name(about, cluster)
        if one.error is not None:
            made.append(Dependency(name, "bad", "fails"))
        elif one.answered_ago_s is None:
            made.append(Dependency(name, "unknown", "not asked yet"))
        elif one.answered_ago_s < HEARD_S:
            made.append(Dependency(name, "ok", words.age(one.answered_ago_s)))
        elif about != WAY or not _is_active(cluster):  # only a standby asks for it
            made.append(Dependency(name, "unknown", f"last {words.age(one.answered_ago_s)}"))
    return sorted(made, key=lambda one: one.name)


def _failing(seen: PairSeen) -> Iterator[str]:
    for site, side in sorted(seen.sides.items()):
        if side.look is None:
            yield f"site {seen.site} asks site {site}: {side.error}"
            continue
        for about, one in side.look.cluster.dependencies.items():
            if one.error is not None:
                yield f"site {site}, {_dependency_name(about, side.look.cluster)}: {one.error}"


def _is_active(cluster: ClusterDocument) -> bool:
    return str(cluster.role) in ("ACTIVE", "DOWNGRADE_ACTIVE", "DRAINING")


def _dependency_name(about: str, cluster: ClusterDocument) -> str:
    """Returns what the site asks, or hears of, in words that need no glossary."""
    other = OTHER[cluster.site]
    names = {PEER_DFS: f"DFS of site {other}", WAY: f"calls to site {other}", LOCAL_LOG: "WAL"}
    if about == PEER:
        return f"shipping to site {other}" if _is_active(cluster) else f"word from site {other}"
    return names.get(about, about)
