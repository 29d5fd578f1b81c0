"""A table's schema: what it is, how it is checked when a client sends one, and how it changes online.

What always holds: a column's id is never used twice in a table, so stored values of a dropped column stay unreachable
when its name comes back; key columns are never nullable, never have a default, and are never dropped; a schema that
`parse_table` or `alter` returned is valid. Column defaults are kept as stored values (types.py); None is no default,
which for a nullable column means null. Source: product.md section 2.
This module is pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from hashlib import blake2b
from typing import Annotated, Any

import msgspec

from storage.rows.types import TYPES, reader
from twinlog.decoding import decoded
from twinlog.errors import InvalidInput, LogError

COLUMNS_MAX = 1000
KEY_COLUMNS_MAX = 16
HISTORY_S_MAX = 366 * 86_400
REPLICATIONS = ("sync", "async", "local")
TypeName = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(TYPES)})]
Replication = Annotated[str, msgspec.Meta(extra_json_schema={"enum": list(REPLICATIONS)})]
NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,127}")
_DROPPED = "~"  # in no name that a client can give
_NAME_RULE = "must be 1 to 128 letters, digits or _, and must not begin with a digit"


class Column(msgspec.Struct, frozen=True):
    """One column. `default` is a stored value; None: no default."""

    id: int
    name: str
    type: str
    nullable: bool
    default: Any = None


class TableSchema(msgspec.Struct, frozen=True, omit_defaults=True):
    """One table. `revision` grows with each change; `history_s`: how long old versions are kept for as_of reads."""

    id: int
    name: str
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    partitioning: dict[str, Any] | None  # None: a table that asks for one is refused until it works
    replication: str  # one of REPLICATIONS
    history_s: int
    revision: int
    next_column_id: int
    dropped_ms: int | None = None  # when it was dropped, in milliseconds since 1970; its rows are kept for a while

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """In key order."""
        by_name = {column.name: column for column in self.columns}
        return tuple(by_name[name] for name in self.primary_key)

    @property
    def value_columns(self) -> tuple[Column, ...]:
        """The columns outside the key, in schema order."""
        return tuple(column for column in self.columns if column.name not in self.primary_key)


_encoder = msgspec.msgpack.Encoder()
_decode = msgspec.msgpack.Decoder(TableSchema).decode


def name_before_drop(name: str) -> str:
    """The name that a table had whose name is now `name`; of one that was not dropped, `name` itself."""
    return name.partition(_DROPPED)[0]


def dropped(schema: TableSchema, now_ms: int) -> TableSchema:
    """The table as it is kept behind its drop. Its name is one that nobody can give, so that its old one is free."""
    name = f"{schema.name}{_DROPPED}{schema.id}"
    return msgspec.structs.replace(schema, name=name, dropped_ms=now_ms, revision=schema.revision + 1)


def restored(schema: TableSchema) -> TableSchema:
    """The inverse of `dropped`, as a later revision."""
    name = name_before_drop(schema.name)
    return msgspec.structs.replace(schema, name=name, dropped_ms=None, revision=schema.revision + 1)


def encode_schema(schema: TableSchema) -> bytes:
    return _encoder.encode(schema)


def schema_fingerprint(schema: TableSchema) -> str:
    """16 hex digits. Equal for equal schemas only: an id with a revision would not do, for an active that is lost may have
    given the same revision to another change."""
    return blake2b(encode_schema(schema), digest_size=8).hexdigest()


def decode_schema(data: bytes) -> TableSchema:
    """The inverse of `encode_schema`. Raises LogError for anything else."""
    return decoded(_decode, data, lambda what: LogError(f"a table's schema does not decode: {what}"))


class ColumnDocument(msgspec.Struct, frozen=True):
    """A column as clients see it. `default` is a JSON value of the column's type."""

    name: str
    type: TypeName
    nullable: bool
    default: Any


class TableDocument(msgspec.Struct, frozen=True):
    """A table as clients see it. `history_s`: how long old versions are kept for reads of the past, in seconds."""

    name: str
    columns: list[ColumnDocument]
    primary_key: list[str]
    partitioning: dict[str, Any] | None
    replication: Replication
    history_s: int


def to_public(schema: TableSchema, *, int64_text: bool = False) -> TableDocument:
    """The schema as clients see it: JSON values only. `int64_text`: defaults of int64 columns are decimal text, as in rows."""
    columns = [
        ColumnDocument(column.name, column.type, column.nullable, _public_default(column, int64_text))
        for column in schema.columns
    ]
    return TableDocument(
        schema.name, columns, list(schema.primary_key), schema.partitioning, schema.replication, schema.history_s
    )


def same_table(schema: TableSchema, parsed: TableSchema) -> bool:
    """Returns True when a POST of `parsed` asks for the table that exists (200), False for a different one (409)."""
    return msgspec.json.encode(to_public(schema)) == msgspec.json.encode(to_public(parsed))


def parse_table(body: object, table_id: int = 0) -> TableSchema:
    """The schema in the body of `POST /v1/tables`.

    Raises InvalidInput with every fault: `faults` = list of {"where", "problem"}.
    """
    faults = _Faults()
    members = faults.members(
        body, "table",
        required=("name", "columns", "primary_key"), optional=("partitioning", "replication", "history_s"),
    )
    name = members.get("name")
    if "name" in members:
        faults.check_name("name", name)
    key = _parse_primary_key(members.get("primary_key"), faults) if "primary_key" in members else ()
    columns = _parse_columns(members["columns"], "columns", 1, key, faults) if "columns" in members else []
    if not columns and "columns" in members and not faults:
        faults.add("columns", "must not be empty")
    _check_table(columns, key, faults)
    if members.get("partitioning") is not None:
        faults.add("partitioning", "does not work yet: leave it out")
    replication = _parse_replication(members.get("replication", "sync"), faults)
    history_s = _parse_history(members.get("history_s", 0), faults)
    faults.raise_any(f"table {name!r}" if isinstance(name, str) else "the table")
    return TableSchema(
        id=table_id, name=str(name), columns=tuple(columns), primary_key=key, partitioning=None,
        replication=replication, history_s=history_s, revision=1, next_column_id=len(columns) + 1,
    )


def alter(schema: TableSchema, patch: object) -> TableSchema:
    """The schema after `PATCH /v1/tables/{t}` with {"add", "drop", "rename", "replication", "history_s"}, all optional.

    Names in `drop` and `rename` are those before the change; a name that is dropped may be added again in the same
    patch, as a new column. Raises InvalidInput with every fault, as `parse_table` does.
    """
    faults = _Faults()
    members = faults.members(patch, "patch", optional=("add", "drop", "rename", "replication", "history_s"))
    if not members and not faults:
        faults.add("patch", 'has nothing to change; give "add", "drop", "rename", "replication" or "history_s"')
    dropped = _parse_drop(members.get("drop", []), schema, faults)
    renamed = _parse_rename(members.get("rename", {}), schema, dropped, faults)
    added = _parse_columns(members.get("add", []), "add", schema.next_column_id, (), faults)
    for column in added:
        if not column.nullable and column.default is None:
            faults.add(f"add.{column.name}", "needs a default, or must be nullable: rows exist already")
    kept = [
        msgspec.structs.replace(column, name=renamed.get(column.name, column.name))
        for column in schema.columns if column.name not in dropped
    ]
    columns = (*kept, *added)
    key = tuple(renamed.get(name, name) for name in schema.primary_key)
    _check_table(columns, key, faults)
    replication = _parse_replication(members.get("replication", schema.replication), faults)
    if replication != schema.replication and "local" in (replication, schema.replication):
        faults.add("replication", "cannot change to or from local, for only one site holds such rows; make a new table")
    history_s = _parse_history(members.get("history_s", schema.history_s), faults)
    faults.raise_any(f"the change of table {schema.name!r}")
    return msgspec.structs.replace(
        schema, columns=columns, primary_key=key, replication=replication, history_s=history_s,
        revision=schema.revision + 1, next_column_id=schema.next_column_id + len(added),
    )


class _Faults:
    """Faults as they are found, each with its place; raised together at the end."""

    def __init__(self) -> None:
        self._found: list[dict[str, str]] = []

    def __bool__(self) -> bool:
        return bool(self._found)

    def add(self, where: str, problem: str) -> None:
        self._found.append({"where": where, "problem": problem})

    def raise_any(self, what: str) -> None:
        if self._found:
            listed = "; ".join(f"{fault['where']} {fault['problem']}" for fault in self._found[:20])
            raise InvalidInput(f"{what} is not valid: {listed}", faults=self._found)

    def members(
        self, value: object, where: str, required: tuple[str, ...] = (), optional: tuple[str, ...] = ()
    ) -> Mapping[str, Any]:
        """`value` when it is an object with these members; what is wrong with it becomes a fault."""
        if not isinstance(value, dict):
            self.add(where, "must be an object")
            return {}
        allowed = required + optional
        for name in value:
            if name not in allowed:
                self.add(f"{where}.{str(name)[:128]}", f"is not known; known are {', '.join(allowed)}")
        for name in required:
            if name not in value:
                self.add(f"{where}.{name}", "is missing")
        return value

    def check_name(self, where: str, name: object) -> bool:
        sound = isinstance(name, str) and NAME.fullmatch(name) is not None
        if not sound:
            self.add(where, _NAME_RULE)
        return sound

    def names(self, value: object, where: str) -> tuple[str, ...]:
        """`value` when it is a list of different column names."""
        if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
            self.add(where, "must be a list of column names")
            return ()
        if len(set(value)) < len(value):
            self.add(where, "names a column twice")
        return tuple(value)


def _public_default(column: Column, int64_text: bool) -> Any:
    to_json = str if int64_text and column.type == "int64" else TYPES[column.type].to_json
    return column.default if to_json is None or column.default is None else to_json(column.default)


def _parse_primary_key(value: object, faults: _Faults) -> tuple[str, ...]:
    names = faults.names(value, "primary_key")
    if not 1 <= len(names) <= KEY_COLUMNS_MAX and not faults:
        faults.add("primary_key", f"must name 1 to {KEY_COLUMNS_MAX} columns")
    return names


def _parse_columns(value: object, where: str, first_id: int, key: tuple[str, ...], faults: _Faults) -> list[Column]:
    if not isinstance(value, list):
        faults.add(where, "must be a list of columns")
        return []
    if len(value) > COLUMNS_MAX:
        faults.add(where, f"has {len(value)} columns; at most {COLUMNS_MAX} are allowed")
        return []
    columns = [_parse_column(item, f"{where}[{i}]", first_id + i, key, faults) for i, item in enumerate(value)]
    return [column for column in columns if column is not None]


def _parse_column(value: object, where: str, column_id: int, key: tuple[str, ...], faults: _Faults) -> Column | None:
    members = faults.members(value, where, required=("name", "type"), optional=("nullable", "default"))
    name, type_name = members.get("name"), members.get("type")
    if "name" not in members or "type" not in members or not faults.check_name(f"{where}.name", name):
        return None
    assert isinstance(name, str)
    if not isinstance(type_name, str) or type_name not in TYPES:
        faults.add(f"{where}.type", f"of column {name!r} must be one of {', '.join(TYPES)}")
        return None
    in_key = name in key
    nullable = members.get("nullable", not in_key)
    if not isinstance(nullable, bool):
        faults.add(f"{where}.nullable", f"of column {name!r} must be true or false")
        return None
    default = members.get("default")
    if in_key:
        if nullable:
            faults.add(f"{where}.nullable", f"of column {name!r} must be false, for it is in the primary key")
        if default is not None:
            faults.add(f"{where}.default", f"of column {name!r} must be absent, for it is in the primary key")
        if TYPES[type_name].from_text is None:
            faults.add(f"{where}.type", f"of column {name!r} cannot be {type_name}, for it is in the primary key")
    elif default is not None:
        try:
            default = reader(name, type_name, nullable=False)(default)
        except InvalidInput as error:
            faults.add(f"{where}.default", f"does not fit: {error.message}")
    return Column(id=column_id, name=name, type=type_name, nullable=nullable, default=default)


def _check_table(columns: list[Column] | tuple[Column, ...], key: tuple[str, ...], faults: _Faults) -> None:
    """Checks all columns together."""
    names = [column.name for column in columns]
    for name in sorted({name for name in names if names.count(name) > 1} if len(set(names)) < len(names) else ()):
        faults.add("columns", f"would have the name {name!r} twice")
    if len(columns) > COLUMNS_MAX:
        faults.add("columns", f"would be {len(columns)}; at most {COLUMNS_MAX} are allowed")
    for name in key:
        if name not in names and not faults:
            faults.add("primary_key", f"names {name!r}, which is no column")


def _parse_replication(value: object, faults: _Faults) -> str:
    if not isinstance(value, str) or value not in REPLICATIONS:
        faults.add("replication", f"must be one of {', '.join(REPLICATIONS)}")
        return "sync"
    return value


def _parse_history(value: object, faults: _Faults) -> int:
    if type(value) is not int or not 0 <= value <= HISTORY_S_MAX:
        faults.add("history_s", f"must be an integer of seconds, 0 to {HISTORY_S_MAX}")
        return 0
    return value


def _parse_drop(value: object, schema: TableSchema, faults: _Faults) -> frozenset[str]:
    names = faults.names(value, "drop")
    known = {column.name for column in schema.columns}
    for name in names:
        if name in schema.primary_key:
            faults.add("drop", f"names {name!r}, which is in the primary key")
        elif name not in known:
            faults.add("drop", f"names {name!r}, which is no column")
    return frozenset(names)


def _parse_rename(value: object, schema: TableSchema, dropped: frozenset[str], faults: _Faults) -> dict[str, str]:
    if not isinstance(value, dict):
        faults.add("rename", 'must be an object {"old name": "new name"}')
        return {}
    known = {column.name for column in schema.columns} - dropped
    renamed = {}
    for old, new in value.items():
        if old not in known:
            faults.add("rename", f"names {str(old)[:128]!r}, which is no column, or is dropped")
        elif faults.check_name(f"rename.{old}", new):
            renamed[old] = new
    return renamed
