"""The look at the figures of loss that an active shows, beside what the other site really has.

What always holds: what is so is read from bytes and storages, not from what the product believes. Where the world itself has
taken away what was held (an older disk, a rotten one), no look is taken until the other site is whole again.
"""

from __future__ import annotations

from chaos.history.lines import RiskLook
from chaos.simulate.copies import Segments, reached_there
from chaos.simulate.world import OTHER, World
from gateway.epoch.commit_rule import CommitMode
from gateway.site.cluster_document import at_risk
from gateway.site.metrics import replication_lag
from gateway.site.site import Site
from storage.prefix import needs_base

FRESH_S = 1.0


def risk_look(world: World, read: Segments, name: str, site: Site) -> RiskLook | None:
    """Returns what `site` shows and what is so; None when no epoch is open there, or nothing is certain."""
    state, there, epoch = world.watch.value, world.machines[OTHER[name]], site.active_epoch
    if epoch is None or state is None or (state.epoch, state.active) != (epoch.epoch, name):
        return None
    shown, lag, committed, engine = at_risk(site), replication_lag(site), epoch.core.committed, there.engine
    lacks_base = needs_base(engine)  # rows without their beginning: nobody can follow from them
    is_linked = all(link.cut is None for link in world.network.between(name, OTHER[name]))
    is_heard = is_linked and _is_fresh(site)
    if (there.hollow and not (lacks_base and is_heard)) or (there.is_rotten()[1] and not lacks_base):
        return None  # nobody learns of a new disk before its site answers
    applied = engine.applied.seq if world.alive(OTHER[name]) is not None else engine.durable_seq
    # a log that is out of reach may be gone
    held = max(applied, reached_there(world, read, OTHER[name], site.layout)) if is_linked and there.dfs.is_well() else applied
    if lacks_base:
        held = applied = 0
    return RiskLook(
        name, epoch.epoch, world.loop.now_s, None if shown is None else shown.records, None if lag is None else lag.records,
        max(0, committed - held), max(0, committed - applied), is_heard,
    )


def _is_fresh(site: Site) -> bool:
    """The active says that it has just heard the other one."""
    epoch = site.active_epoch
    at_s = epoch.shipper.view.at_s if epoch is not None else None
    return at_s is not None and site.parts.clock.monotonic_s() - at_s < FRESH_S


def shown_at_rest(site: Site) -> list[str]:
    """Returns the figures of loss that an active still shows although the other site has everything and is heard."""
    epoch = site.active_epoch
    if epoch is None:
        return []
    shown, lag, exact = at_risk(site), replication_lag(site), epoch.core.mode is CommitMode.SYNC
    said = {
        "records at risk": shown is not None and (shown.records, shown.exact) == (0, exact),
        "a lag": lag is not None and lag.records == 0,
    }
    return [f"Site {site.site} is at rest, and shows {what}." for what, is_right in said.items() if not is_right]
