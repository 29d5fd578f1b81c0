"""Mistakes that are planted to see whether the simulator finds them: each one is a small patch of the product for one run.

What always holds: the product knows nothing of them, and is as it was when `planted` is left; a bug names the promise that it
should break, who is to notice, and the seeds among which somebody must; the clean product passes those very seeds. What a
second guard of the product makes harmless is planted deeper, with that guard gone too, and its sentence says so.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager
from types import MappingProxyType

from chaos.simulate.bugs import figures, leaks, logs, reads, roles, rules, wire
from chaos.simulate.bugs.bug import Bug
from twinlog.errors import InvalidInput

_ROOMS = (logs, roles, reads, wire, leaks, figures, rules)
BUGS: Mapping[str, Bug] = MappingProxyType({bug.name: bug for room in _ROOMS for bug in room.BUGS})


def planted(name: str) -> AbstractContextManager[None]:
    """The product with this bug, until the context is left. Raises InvalidInput."""
    if name not in BUGS:
        raise InvalidInput(f"no bug is called {name!r}: it is one of {', '.join(BUGS)}")
    return BUGS[name].planted()
