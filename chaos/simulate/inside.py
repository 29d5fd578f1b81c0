"""Looks inside a site for what it says nowhere: state that is wrong at any moment, or left over once a pair is at rest.

What always holds: a look changes nothing and draws nothing; each sentence names the site and what is wrong there.
"""

from __future__ import annotations

from gateway.site.site import Site
from remote_log.replication.sink import FOLLOWED_EPOCH

SERVES = ("ACTIVE", "DOWNGRADE_ACTIVE")


def wrong_inside(site: Site) -> list[str]:
    """Returns what must not be so at any moment."""
    found: list[str] = []
    durable = int(site.parts.engine.meta(FOLLOWED_EPOCH) or b"0")
    if site.sink.followed_epoch > durable:
        found.append(f"Site {site.site} follows epoch {site.sink.followed_epoch}, and its storage notes {durable}.")
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
