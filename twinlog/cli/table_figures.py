"""The figures of a table in words, from the document that the API answers: for `twinlog tables --figures`, and for the page.

What always holds: what was not counted is called about so much; what nobody knows is called unknown, never 0; nothing is said
of rows at the other site but what that site said itself.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from twinlog.cli.status import duration, size

UNKNOWN = "unknown"
Document = Mapping[str, Any]


def rows_words(held: Document) -> str:
    """Says how many rows there are. `held`: the member `size` of the document, here and below."""
    rows = held.get("rows")
    if not isinstance(rows, int):
        return UNKNOWN
    return f"{rows:,}" if held.get("rows_are") == "counted" else f"about {rows:,}"


def bytes_words(held: Document) -> str:
    """Says how large keys and values are."""
    held_bytes = held.get("bytes")
    if not isinstance(held_bytes, int):
        return UNKNOWN
    return size(held_bytes) if held.get("rows_are") == "counted" else f"about {_about_size(held_bytes)}"


def _about_size(count: float) -> str:
    """Keeps two digits: more would look like a measurement."""
    value, unit = size(count).split()
    known = float(value.replace(",", ""))
    return f"{known:.1f} {unit}" if known < 10 and unit != "bytes" else f"{float(f'{known:.2g}'):,.0f} {unit}"


def held_words(held: Document) -> str:
    """Says what a site holds of the table."""
    disk, age_s = held.get("disk_bytes"), held.get("age_s")
    on_disk = f"{size(disk)} on the disk of its database, with indexes" if isinstance(disk, int) else ""
    if not isinstance(held.get("rows"), int):
        return f"{UNKNOWN}; {on_disk}" if on_disk else UNKNOWN
    unit = "row" if held["rows"] == 1 else "rows"
    found = [f"{rows_words(held)} {unit}", f"{bytes_words(held)} of keys and values", *([on_disk] if on_disk else [])]
    way = "counted" if held.get("rows_are") == "counted" else "from a sample"
    when = "now"
    if isinstance(age_s, int | float) and age_s >= 2:
        when = f"{duration(float(round(age_s)))} ago".replace(".0 s", " s")
    return f"{', '.join(found)} ({way} {when})"


def standing_words(other: Document) -> str:
    """Says how the schema stands at the other site. `other`: that member of the document."""
    site, revision = f"site {other.get('site')}", other.get("revision")
    match other.get("schema"):
        case "same":
            return f"{site} has the same"
        case "behind":
            return f"{site} is still at revision {revision}" + (": its database refuses the next" if other.get("error") else "")
        case "ahead":
            return f"{site} is at revision {revision} already"
        case "absent":
            return f"{site} does not have the table"
        case "loading":
            return f"base data of {site} is on its way"
    return UNKNOWN


def schema_words(revision: int, other: Document) -> str:
    """Says at which revision the schema is at both sites."""
    if other.get("schema") == "same":
        return f"both sites have revision {revision}"
    why = f" ({other['error']})" if other.get("error") else ""
    return f"revision {revision} here; {standing_words(other)}{why}"
