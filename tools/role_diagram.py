"""Draws docs/roles.md from the table of roles, so that the page can never differ from the code: `python -m tools.role_diagram`.

What always holds: the page is a function of switchover/roles/table.py alone; a test compares the file with it.
"""

from __future__ import annotations

from pathlib import Path

from switchover.roles.table import TABLE, Role, permissions

PAGE = Path(__file__).resolve().parent.parent / "docs" / "roles.md"

_INTRODUCTION = """# Roles of a site

Written by `python -m tools.role_diagram` from `switchover/roles/table.py`; change that table, never this page.
An event that is not shown for a role is refused and changes nothing. A gateway boots as CLOSED.
"""


def mermaid() -> str:
    """The table as a Mermaid state diagram."""
    arrows = [f"    {role} --> {transition.role}: {event}" for (role, event), transition in TABLE.items()]
    return "\n".join(["stateDiagram-v2", f"    [*] --> {Role.CLOSED}", *arrows]) + "\n"


def page() -> str:
    """The whole page: diagram, what each role allows, and each row of the table with its reason."""
    allowed = ["| role | writes | reads | accepts shipped frames |", "|---|---|---|---|"]
    for role in Role:
        allowed.append(f"| {role} | " + " | ".join("yes" if may else "no" for may in permissions(role)) + " |")
    rows = ["| role | event | becomes | reason |", "|---|---|---|---|"]
    for (role, event), transition in TABLE.items():
        rows.append(f"| {role} | {event} | {transition.role} | {transition.reason} |")
    diagram = f"```mermaid\n{mermaid()}```\n"
    return "\n".join([_INTRODUCTION, diagram, *allowed, "", *rows]) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
