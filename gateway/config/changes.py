"""Two configurations of one site compared: which settings differ, which of them can change while the gateway runs.

What always holds: whether a setting can change stands beside the setting itself (RUN_TIME and RESTART in storage/settings.py);
a section that comes or goes needs a restart as a whole; no secret is shown.
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from typing import Any, NamedTuple, TypeVar

import msgspec

from gateway.config.reading import keys, section_class, shown
from gateway.service.documents import SettingChange
from storage.settings import AtRunTime

_T = TypeVar("_T")
_NOTHING = "not set"


class Difference(NamedTuple):
    change: SettingChange
    at_run_time: bool


def differences(running: Any, wanted: Any, prefix: str = "") -> Iterator[Difference]:
    """Yields each setting of `wanted` that is not as in `running`, in the order of the file."""
    for name, (_, hint) in keys(type(running)).items():
        key, before, after = prefix + name, getattr(running, name), getattr(wanted, name)
        if section_class(hint) is None:
            if before != after:
                yield Difference(SettingChange(key, _text(before, hint), _text(after, hint)), is_at_run_time(hint))
        elif before is None or after is None:
            if before is not after:
                said = [_NOTHING if section is None else "a section" for section in (before, after)]
                yield Difference(SettingChange(key, *said), at_run_time=False)
        else:
            yield from differences(before, after, key + ".")


def with_changes(running: _T, wanted: _T) -> _T:
    """Returns `running` with what `wanted` has of the settings that can change while the gateway runs."""
    taken: dict[str, Any] = {}
    for name, (_, hint) in keys(type(running)).items():
        before, after = getattr(running, name), getattr(wanted, name)
        if section_class(hint) is None:
            taken[name] = after if is_at_run_time(hint) else before
        else:
            taken[name] = before if before is None or after is None else with_changes(before, after)
    return dataclasses.replace(running, **taken)  # type: ignore[type-var]


def is_at_run_time(hint: Any) -> bool:
    return any(isinstance(mark, AtRunTime) for mark in typing.get_args(hint)[1:])


def _text(value: Any, hint: Any) -> str:
    found = shown(value, hint)
    if found in (None, "", (), [], {}):
        return _NOTHING
    return found if isinstance(found, str) else msgspec.json.encode(found, enc_hook=str).decode()
