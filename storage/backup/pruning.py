"""Chooses what may go from a place that holds backups: every point in time that is to stay can still be restored.

What always holds: the newest base stays with all of its log; a base goes only as a whole, together with the log behind it; by
age it goes only where a later one leads to every moment that is younger. What no manifest names goes only where no call that
still runs can name it: it would publish under a number that is taken. Every other base that is marked is unfinished: nobody
knows whether its call still runs.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from storage.backup.manifest import Manifest, newest_of_each_base
from twinlog.errors import InvalidInput

_BASE = re.compile(r"(\d+)-(\d+)-[0-9a-f]+")
_LOG = re.compile(r"log-(\d+)-[0-9a-f]+-\d+")


@dataclass(frozen=True, slots=True)
class Choice:
    """The newest manifest of each base, in the order in which they were written."""

    stay: list[Manifest]
    go: list[Manifest]


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A base that no manifest names: of a call that runs, or that did not end."""

    base_id: str
    files: int
    size_bytes: int


def by_count(manifests: Sequence[Manifest], keep: int) -> Choice:
    """The newest `keep` bases stay. Raises InvalidInput."""
    if keep < 1:
        raise InvalidInput("--keep is at least 1: the newest base always stays")
    chains = newest_of_each_base(manifests)
    return Choice(chains[-keep:], chains[:-keep])


def by_age(manifests: Sequence[Manifest], since_ms: int) -> Choice:
    """Every moment from `since_ms` on that can be restored now can be restored then."""
    chains = newest_of_each_base(manifests)
    first = max((place for place, one in enumerate(chains) if one.base.point.wall_ms <= since_ms), default=0)
    return Choice(chains[first:], chains[:first])


def unnamed_bases(marked: Mapping[str, int], manifests: Sequence[Manifest]) -> list[str]:
    """The marked bases that no manifest names and none will. `marked`: with the number of the manifest that names each."""
    newest = max((one.number for one in manifests), default=0)
    return [one for one in unfinished_bases(marked, manifests) if marked[one] <= newest]


def unfinished_bases(marked: Iterable[str], manifests: Sequence[Manifest]) -> list[str]:
    """The marked bases that no manifest names. A call that runs may name them yet."""
    named = {one.base.id for one in manifests}
    return [one for one in marked if _BASE.fullmatch(one) and one not in named]


def unnamed_files(files: Iterable[str], folder: str, manifests: Sequence[Manifest]) -> list[str]:
    """The parts of a log in `folder` that no manifest names, of calls that ended early: the log leads further by now."""
    named = {part.name for one in manifests for part in one.parts}
    end = max((one.end.seq for one in manifests if folder == f"base-{one.base.id}"), default=0)
    return [
        name for name in files
        if (made := _LOG.fullmatch(name)) is not None and int(made[1]) < end and f"{folder}/{name}" not in named
    ]
