"""Reading a configuration by the marks on its classes (storage/settings.py): TOML, environment over it, every fault at once.

What always holds: an unknown key is a fault, with the known key nearest to it; a secret in plain text is a fault; a value is
within its marks, or it is a fault that names the key, its file (or environment variable), the problem and what is allowed; no
path of a setting is looked up on its disk, for a DFS may hang.
"""

from __future__ import annotations

import contextlib
import dataclasses
import difflib
import os
import re
import types
import typing
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, TypeVar
from urllib.parse import urlsplit

from storage.log.encryption import KEY_REFERENCE, LogKey, log_keys
from storage.settings import HttpUrl, KeyReferences, Matches, NotInFile, OneOf, Reference, Secret, Within
from twinlog.addresses import misplaced
from twinlog.errors import words
from twinlog.wire.home_paths import at_home

PREFIX = "TWINLOG_"
_MISSING = "is missing"
REMOVED = (  # nothing read the first two; what read the others had figures of its own
    "engine.flush_bytes", "replication.retry_max_s", "replication.retry_first_s", "replication.poll_interval_s",
)
_KIND_NAMES = {
    int: "a whole number", float: "a number", Path: "a path", str: "a text", bool: "true or false",
    Mapping: "a table of texts", tuple: "a list of texts",
}
_T = TypeVar("_T")
Fault = Callable[..., None]  # (key, problem, allowed, *other keys that the check needs)


def effective(config: Any) -> Iterator[tuple[str, Any, str]]:
    """(dotted key, value, where it comes from) of every key, in the file's order; secrets masked."""
    yield from _effective(config, "", config.sources)


def _effective(part: Any, prefix: str, sources: Mapping[str, str]) -> Iterator[tuple[str, Any, str]]:
    sections = []
    for name, (_, hint) in keys(type(part)).items():
        value, key = getattr(part, name), prefix + name
        if dataclasses.is_dataclass(value):
            sections.append((value, key + "."))
        elif value not in (None, {}):
            yield key, shown(value, hint), sources.get(key, "default")
    for value, inner in sections:
        yield from _effective(value, inner, sources)


def shown(value: Any, hint: Any) -> Any:
    """Returns a value of a setting as anybody may see it. `hint`: the annotation of its field."""
    rule = _Rule(hint)
    if rule.is_keys:
        return [f"{key.key_id}=***" if key.secret else key.key_id for key in value]
    return _masked(value) if rule.is_secret else value


def _masked(value: str) -> str:
    scheme, separator, rest = value.partition("://")
    if not separator:
        return "***" if value else ""
    _, at, tail = rest.rpartition("@")
    return f"{scheme}://***@{tail}" if at else value


def _with_sections(key: str) -> list[str]:
    """Returns the key and the sections around it, the outermost last."""
    parts = key.split(".")
    return [".".join(parts[:length]) for length in range(len(parts), 0, -1)]


class Reader:
    """Walks a dataclass beside a TOML table and collects faults instead of stopping at the first."""

    def __init__(self, file: Path, environ: Mapping[str, str]) -> None:
        self.file = file
        self.environ = environ
        self.faults: list[dict[str, str]] = []
        self.sources: dict[str, str] = {}
        self.known_variables: set[str] = set()
        self._faulty: set[str] = set()
        self._homes: dict[str, list[str]] = {}  # name -> each dotted key with that name

    def fault(self, key: str, problem: str, allowed: str, *others: str, file: str | None = None) -> None:
        """Notes a fault; nothing when `key`, a section around it or one of the `others` that the check needs is faulty."""
        if self._faulty.isdisjoint((*_with_sections(key), *others)):
            self._faulty.add(key)
            self.faults.append({"file": file or str(self.file), "key": key, "problem": problem, "allowed": allowed})

    def _found(self, home: str) -> None:
        """A key of `home` that is missing stands elsewhere: one fault says so."""
        self._faulty.add(home)
        self.faults = [
            one for one in self.faults if one["problem"] != _MISSING or home not in _with_sections(one["key"])
        ]

    def read(self, cls: type[_T], table: Mapping[str, Any], prefix: str = "") -> _T | None:
        """An instance of `cls`, with defaults in place of faulty values, so that the checks across keys can continue.

        None when a key without a default is missing or faulty.
        """
        values: dict[str, Any] = {}
        complete = True
        if not prefix:
            self._homes = homes(cls)
        known = keys(cls)
        self._unknown(table, list(known), prefix)
        for name, (spec, hint) in known.items():
            key, section = prefix + name, section_class(hint)
            if section is not None:
                value = self._section(section, spec, table.get(name), key)
            else:
                value = self._value(spec, hint, table, key)
            if value is not None:
                values[name] = value
            elif _is_required(spec):
                complete = False
        return cls(**values) if complete else None

    def _unknown(self, table: Mapping[str, Any], known: list[str], prefix: str) -> None:
        for name in table:
            if prefix + name in REMOVED:
                self.fault(prefix + name, "was removed: it had no effect of its own", "nothing: delete the line")
            elif name not in known:
                self._unknown_one(name, table[name], known, prefix)

    def _unknown_one(self, name: str, value: Any, known: list[str], prefix: str) -> None:
        """A key that stands above or below the one section which has it is named with that one."""
        near = [prefix + one for one in difflib.get_close_matches(name, known, 1, 0.6)]
        places = [home for home in self._homes.get(name, ()) if _are_on_one_way(prefix, home.removesuffix(name))]
        if len(places) == 1:
            found = misplaced(self.file, prefix + name, places[0], is_section=isinstance(value, dict))
            self.fault(prefix + name, found["problem"], found["allowed"])
            self._found(places[0])
            return
        hint = f"; did you mean {' or '.join(places[:3] or near)}?" if places or near else ""
        self.fault(prefix + name, f"there is no such key{hint}", ", ".join(known))

    def _section(self, cls: type[Any], spec: dataclasses.Field[Any], table: Any, key: str) -> Any:
        if table is not None and not isinstance(table, dict):
            self.fault(key, f"is {table!r}, not a section", f"[{key}] with keys of its own")
            return None
        given = table is not None or any(variable.startswith(_variable(key) + "__") for variable in self.environ)
        if spec.default is None and not given:
            self.known_variables.update(_variable(f"{key}.{name}") for name in keys(cls))
            return None
        return self.read(cls, table or {}, key + ".")

    def _value(self, spec: dataclasses.Field[Any], kind: Any, table: Mapping[str, Any], key: str) -> Any:
        """The converted value; None: take the default."""
        rule = _Rule(kind)
        variable = _variable(key)
        self.known_variables.add(variable)
        if variable in self.environ:
            raw, self.sources[key] = self.environ[variable], f"environment {variable}"
        elif spec.name in table:
            raw, self.sources[key] = table[spec.name], str(self.file)
        else:
            if _is_required(spec):
                self.fault(key, _MISSING, rule.allowed())
            return None
        try:
            if raw == "" and spec.default != "":
                raise ValueError("is empty")
            if rule.is_secret:
                return self._secret(raw, rule.is_reference)
            if rule.is_keys:
                return self.keys(rule.texts(raw, is_text=variable in self.environ))
            value = rule.convert(raw, is_text=variable in self.environ)
            return self._absolute(value) if isinstance(value, Path) else value
        except ValueError as error:
            self.fault(key, words(error), rule.allowed(), file=variable if variable in self.environ else None)
            return None

    def _absolute(self, path: Path) -> Path:
        """By its text alone: whoever looks at a DFS that hangs to follow a link in its name never returns."""
        return Path(os.path.normpath(self.file.parent / path))

    def _secret(self, raw: Any, is_reference: bool) -> str:
        """`env:NAME` and `file:PATH` are looked up; anything else must hold no password, or is a fault (`is_reference`)."""
        if not isinstance(raw, str):
            raise ValueError("is not a text")
        scheme, _, name = raw.partition(":")
        if scheme == "env":
            if not self.environ.get(name):
                raise ValueError(f"refers to the environment variable {name}, which is not set")
            return self.environ[name]
        if scheme == "file":
            path = (self.file.parent / at_home(name)).resolve()
            try:
                return path.read_text(encoding="utf-8").strip()
            except (OSError, UnicodeDecodeError) as error:
                raise ValueError(f"refers to the file {path}, which cannot be read: {words(error)}") from error
        if is_reference and raw:
            raise ValueError("is a secret in plain text")
        if urlsplit(raw).password is not None:
            raise ValueError("holds a password in plain text")
        return raw

    def keys(self, references: list[str]) -> tuple[LogKey, ...]:
        """The keys behind `references`. Raises ValueError."""
        return log_keys(references, lambda reference: self._secret(reference, is_reference=True))

    def unknown_variables(self) -> None:
        for variable in sorted(self.environ):
            if variable.startswith(PREFIX) and "__" in variable and variable not in self.known_variables:
                near = difflib.get_close_matches(variable, self.known_variables, 1, 0.6)
                hint = f"; did you mean {near[0]}?" if near else ""
                self.fault(variable, f"names no setting{hint}", "TWINLOG_<SECTION>__<KEY>", file="environment")


class _Rule:
    """The annotation of one key, and what it allows."""

    def __init__(self, hint: Any) -> None:
        plain, *marks = typing.get_args(hint) if typing.get_origin(hint) is Annotated else (hint,)
        if isinstance(plain, types.UnionType):
            plain = next(part for part in typing.get_args(plain) if part is not types.NoneType)
        self.kind: type = typing.get_origin(plain) or plain
        self.within = next((mark for mark in marks if isinstance(mark, Within)), None)
        self.choices = next((mark.choices for mark in marks if isinstance(mark, OneOf)), ())
        self.pattern = next((mark.pattern for mark in marks if isinstance(mark, Matches)), ".*")
        self.is_url = any(isinstance(mark, HttpUrl) for mark in marks)
        self.is_secret = any(isinstance(mark, Secret) for mark in marks)
        self.is_reference = any(isinstance(mark, Reference) for mark in marks)
        self.is_keys = any(isinstance(mark, KeyReferences) for mark in marks)

    def allowed(self) -> str:
        if self.is_reference:
            return "env:NAME or file:PATH"
        if self.is_keys:
            return f"a list of ID=file:PATH, ID=env:NAME and plain; the first one writes, all read ({KEY_REFERENCE})"
        if self.is_secret:
            return "env:NAME, file:PATH, or an address without a password"
        if self.is_url:
            return "http://HOST:PORT or https://HOST:PORT"
        if self.within is not None:
            return f"{_KIND_NAMES[self.kind]} from {self.within.low} to {self.within.high}"
        if self.kind is tuple:
            return f"a list of texts, each like {self.pattern}"
        if self.pattern != ".*":
            return f"letters, digits, _ and -: {self.pattern}"
        return " | ".join(self.choices) or _KIND_NAMES[self.kind]

    def convert(self, raw: Any, *, is_text: bool) -> Any:
        """`raw` as the key's type. Raises ValueError that says what it is instead."""
        if self.within is not None:
            return self._number(raw, self.within, is_text=is_text)
        if self.kind is bool:
            return _truth(raw, is_text=is_text)
        if self.kind is Mapping:
            return _texts(raw)
        if self.kind is tuple:
            return self._list(raw, is_text=is_text)
        if not isinstance(raw, str):
            raise ValueError(f"is {raw!r}, not a text")
        if self.choices and raw not in self.choices:
            near = difflib.get_close_matches(raw, self.choices, 1, 0.6)
            raise ValueError(f"is {raw!r}" + (f"; did you mean {near[0]!r}?" if near else ""))
        if not re.fullmatch(self.pattern, raw, re.DOTALL):
            raise ValueError(f"is {raw!r}")
        if self.is_url and raw:
            _check_http_url(raw)
        return at_home(raw) if self.kind is Path else raw

    def _list(self, raw: Any, *, is_text: bool) -> tuple[str, ...]:
        found = self.texts(raw, is_text=is_text)
        for part in found:
            if not re.fullmatch(self.pattern, part):
                raise ValueError(f"has {part!r}")
        return tuple(found)

    def texts(self, raw: Any, *, is_text: bool) -> list[str]:
        """Returns the texts of a list; in the environment they are joined by commas. Raises ValueError."""
        if is_text:
            raw = [part.strip() for part in raw.split(",")]
        if not isinstance(raw, list) or not all(isinstance(part, str) for part in raw):
            raise ValueError("is not a list of texts" if self.is_keys else f"is {raw!r}, not a list of texts")
        return raw

    def _number(self, raw: Any, within: Within, *, is_text: bool) -> int | float:
        number = raw
        if is_text:
            with contextlib.suppress(ValueError):
                number = self.kind(raw)
        if isinstance(number, bool) or not isinstance(number, int if self.kind is int else int | float):
            raise ValueError(f"is {raw!r}, not {_KIND_NAMES[self.kind]}")
        if not within.low <= number <= within.high:
            raise ValueError(f"is {number}, out of range")
        return int(number) if self.kind is int else float(number)


def _truth(raw: Any, *, is_text: bool) -> bool:
    if is_text and raw in ("true", "false"):
        return bool(raw == "true")
    if not isinstance(raw, bool):
        raise ValueError(f"is {raw!r}")
    return raw


def _texts(raw: Any) -> dict[str, str]:
    if not isinstance(raw, dict) or not all(isinstance(value, str | int | float) for value in raw.values()):
        raise ValueError(f"is {raw!r}, not a table of texts")
    return {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in raw.items()}


def keys(cls: type[Any]) -> dict[str, tuple[dataclasses.Field[Any], Any]]:
    """The keys that a file may have for `cls`: name -> (field, annotation)."""
    hints = typing.get_type_hints(cls, include_extras=True)
    specs = [spec for spec in dataclasses.fields(cls) if NotInFile not in map(type, _marks(hints[spec.name]))]
    return {spec.name: (spec, hints[spec.name]) for spec in specs}


def homes(cls: type[Any], prefix: str = "") -> dict[str, list[str]]:
    """Name -> the dotted keys and sections of `cls` that end with it."""
    found: dict[str, list[str]] = {}
    for name, (_, hint) in keys(cls).items():
        found.setdefault(name, []).append(prefix + name)
        section = section_class(hint)
        for inner, places in (homes(section, f"{prefix}{name}.") if section is not None else {}).items():
            found.setdefault(inner, []).extend(places)
    return found


def _are_on_one_way(one: str, other: str) -> bool:
    """Returns whether one section, as `a.b.`, is within the other; the top level, an empty text, has them all."""
    return one.startswith(other) or other.startswith(one)


def _marks(hint: Any) -> tuple[Any, ...]:
    return typing.get_args(hint)[1:] if typing.get_origin(hint) is Annotated else ()


def _is_required(spec: dataclasses.Field[Any]) -> bool:
    return spec.default is dataclasses.MISSING and spec.default_factory is dataclasses.MISSING


def section_class(hint: Any) -> type[Any] | None:
    """The dataclass that a field holds (also `X | None`), or None for a plain value."""
    for candidate in typing.get_args(hint) or (hint,):
        if isinstance(candidate, type) and dataclasses.is_dataclass(candidate):
            return candidate
    return None


def _variable(key: str) -> str:
    return PREFIX + key.replace(".", "__").upper()


def _check_http_url(raw: str) -> None:
    parts = urlsplit(raw)
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise ValueError(f"is {raw!r}, not an http address")
    if parts.username is not None or parts.query or parts.fragment or parts.port == 0:
        raise ValueError(f"is {raw!r}: only scheme, host, port and path belong here")
