"""The points at which a plan may strike, and how a plan writes one: `POINT` or `POINT/NTH`.

What always holds: a point has the simulator's name: `PORT.CALL.before|after`, `plan.KIND.STEP.before|after|journaled`, or that
of a failpoint of the product inside a step.
"""

from __future__ import annotations

from chaos.simulate.aims import COURSES, REFUSABLE, points, ports
from twinlog.errors import InvalidInput

OF_PORTS = frozenset(ports())
OF_PLANS = frozenset(point for course in COURSES for point in points(course))
KNOWN = OF_PORTS | OF_PLANS
THREAD = "threads.start"  # the one point that the simulator does not have: it has no threads
FAILING = frozenset(point for point in OF_PORTS if point.partition(".")[0] in REFUSABLE)


def point_and_nth(how: str, known: frozenset[str]) -> tuple[str, int]:
    """Reads the `how` of a fault at a step. `known`: the points at which it can be. Raises InvalidInput, ValueError."""
    point, slash, figure = how.partition("/")
    if point not in known:
        near = sorted(each for each in known if each.startswith(point.partition(".")[0] + "."))
        are = ", ".join(near) if near else "PORT.CALL.before or .after; chaos/simulate/aims.py has the names"
        raise InvalidInput(f"{point!r} is no point for it: there are {are}")
    nth = int(figure) if slash else 1
    if nth < 1:
        raise InvalidInput(f"{figure!r} is no number of a pass: the first is 1")
    return point, nth
