"""The look at what a site says of its health, beside what is so: who serves, and whether a pair at rest is called whole.

What always holds: it is the one judgement that is looked at (site_condition), which health, screens and metrics show alike.
What a process that is stopped would say nobody hears.
"""

from __future__ import annotations

from chaos.simulate.limits import limits_of
from chaos.simulate.world import World
from gateway.site.serving_facts import site_condition
from gateway.site.serving_judgement import STANDBY_STORAGE
from gateway.site.site import Site

KEPT = (STANDBY_STORAGE, "left out")  # what people are to see although it is over


def wrong_health(world: World, name: str, site: Site) -> list[str]:
    """Returns what a site says of itself and must not: that it serves, when it has no epoch open or another site has."""
    watch, serving = world.watch, site_condition(site).serving
    if world.lives[name].process.paused or not (serving.reads or serving.writes):
        return []
    if site.active_epoch is None:
        return [f"Site {name} is {site.role} with no epoch open, and says that it serves."]
    state = watch.value
    if state is not None and state.active not in (None, name) and state.epoch > site.epoch and not _may_not_know(world, site):
        return [f"Site {name} says that it serves in epoch {site.epoch}, and site {state.active} has opened {state.epoch}."]
    return []


def _may_not_know(world: World, site: Site) -> bool:
    """A forced command opened elsewhere, out of its sight; and an asynchronous active that sees the other site again acts on
    that a moment later (chaos/checkers/answers.py forgives its answers as long)."""
    if world.watch.is_apart:
        return True
    until_s = world.watch.met_s + limits_of(world.plan).mode_slack_s
    return site.role == "DOWNGRADE_ACTIVE" and world.loop.now_s <= until_s


def said_at_rest(site: Site) -> list[str]:
    """Returns what a site of a pair that is whole and idle says against itself."""
    condition = site_condition(site)
    serving, is_active = condition.serving, site.active_epoch is not None
    right = serving.reads and serving.writes if is_active else serving.follows
    said = [] if right else [f"Site {site.site} is at rest, and says that it does not serve or follow: {serving.why}."]
    troubles = [one.seen for one in condition.troubles if one.about not in KEPT]
    return said + [f"Site {site.site} is at rest, and names a trouble: {seen}." for seen in troubles]
