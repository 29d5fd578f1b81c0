"""The two texts of an incident: a plan of the harness, and one of the simulator.

What always holds: each is read back by its own parser before it is given out, so that a plan that was written can be run.
"""

from __future__ import annotations

from msgspec.structs import replace

from chaos.harness import plan as real
from chaos.harness.faults.registry import BY_NAME
from chaos.harness.incident.draft import Incident, length_s, lines_of
from chaos.harness.incident.found import Found
from chaos.simulate import plan as simulated

CLIENTS = 4
WORKLOAD = "registers"
ABOUT = (
    "# An incident, from the journals and logs of both sites.",
    f"# What clients asked is in neither of them: {WORKLOAD}, as if nothing else were known.",
)


def for_the_harness(found: Incident) -> str:
    """Raises InvalidInput where a line is none of a plan."""
    head = [ABOUT[0], f"workload {WORKLOAD}", f"seconds {length_s(found):g}", ABOUT[1]]
    text = "\n".join([*head, *lines_of(found, BY_NAME)]) + "\n"
    real.parse(text)
    return text


def for_the_simulator(found: Incident) -> str:
    """Raises InvalidInput where a line is none of a plan."""
    operations = round(length_s(found) * CLIENTS / simulated.Knobs().op_interval_s)
    head = [*ABOUT, "seed 1", f"workload {WORKLOAD}", f"clients {CLIENTS}", f"operations {operations}"]
    text = "\n".join([*head, *lines_of(found, simulated.BY_NAME, _simulated)]) + "\n"
    simulated.parse(text)
    return text


def _simulated(each: Found) -> Found | None:
    """The same in the simulator's words; None: it has none."""
    place = each.how.partition("/")[0]
    if each.kind in ("crash", "terminate"):
        return replace(each, kind="crash", how="process")
    if each.kind in ("black-hole", "down"):
        return replace(each, kind="cut")
    if place == "dfs":
        kind = {"disk-hangs": "hang-dfs"}.get(each.kind, "dfs-down")
        return replace(each, kind=kind, how="")
    if each.kind.startswith("disk-"):
        kind = {"disk-hangs": "hang-disk", "disk-full": "full-disk"}.get(each.kind, "engine-fails" if place == "engine" else "")
        return replace(each, kind=kind, how="") if kind else None
    return each if each.kind in simulated.BY_NAME else None
