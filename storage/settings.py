"""Marks on the fields of settings: the limits of each value, written where it is read.

Each room has its own settings, a frozen dataclass; a configuration file has a section for it, with a key for each field. The
marks stand in the annotations: `lease_s: Annotated[float, Within(0.05, 600)] = 1.0`. gateway/config reads a file by them.
Source: docs/decisions/2026-11-22-settings-in-the-rooms.md.
This module is pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True, slots=True)
class Within:
    """A number's limits, both included."""

    low: float
    high: float


@dataclass(frozen=True, slots=True)
class OneOf:
    """The texts that are allowed."""

    choices: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Matches:
    """The regular expression that the whole text matches."""

    pattern: str


class HttpUrl:
    """An http or https address."""


class Secret:
    """May be given by reference, `env:NAME` or `file:PATH`; a password in plain text is a fault; not in the repr."""


class Reference(Secret):
    """Given by reference only: a text of its own would be the secret."""


class KeyReferences:
    """Keys of a log, each given by reference, `ID=env:NAME` or `ID=file:PATH`, or `plain`; never shown."""


class AtRunTime:
    """`twinlog config reload` changes it while the gateway runs."""


class AtStart:
    """It is read at the start alone: a change needs a restart."""


class NotInFile:
    """No key of a configuration file: a figure of the product, which the simulator and tests shorten."""


RUN_TIME, RESTART = AtRunTime(), AtStart()  # each key of a site's configuration has one of the two
Url = Annotated[str, HttpUrl()]
