"""The readers of a site's own files: claims, the register, the journal, configurations, the trail, notes of the engines."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import msgspec

from chaos.fuzz.mutations import dumped
from chaos.fuzz.target import Target, driven
from gateway.config.loading import load_operator_config, load_site_config
from gateway.trail.anchors import anchors_in
from gateway.trail.chain import ChainVerifier, file_name
from gateway.trail.entry import NO_LINE, TrailEntry, Who, line_of, read_line
from gateway.trail.events import OPENED
from remote_log.fencing.claims import ClaimContent, read_claim
from remote_log.layout import RemoteLayout
from storage.engine import EpochEntry, RequestOutcome, Table
from storage.engines.rocks.layout import decode_epoch, decode_outcome, decode_table, pack_applied, unpack_applied
from storage.engines.unshown import unshown_upto
from storage.log.segment import parse_remote_name, parse_wal_name, remote_name, wal_name
from switchover.operations import sql_journal
from switchover.operations.document import HistoryEntry, Operation, OperationError, StepRecord
from switchover.register import sql
from switchover.register.port import Beat, PairState, Switching
from twinlog.addresses import resolve_address
from twinlog.decoding import decoded
from twinlog.errors import ConfigError, DamagedLog, EngineFailed, InvalidInput, Refused

_encode, _pack = msgspec.json.Encoder().encode, msgspec.msgpack.Encoder().encode
_LAYOUT = RemoteLayout("shop")
_STEP = StepRecord("claim", "claims the epoch", True, "done", 5, 9, {"epoch": 3})
_OPERATION = Operation(
    "op-1",
    "failover",
    "b",
    {"accept_data_loss": 5},
    "ann@host",
    1_700_000_000_000,
    (),
    state="failed",
    error=OperationError("refused", "no", {"a": [1]}, "claim"),
)
_ENTRY = HistoryEntry(1_700_000_000_000, "op-1", "failover", "b", "ann", "begun", "claim", 5, {"epoch": 3})
_SITE_FILE = """
pair = "orders"
site = "a"
data_dir = "/srv/twinlog"
insecure = true
[http]
host = "0.0.0.0"
port = 8401
advertised_url = "https://gateway-a.example.org:8401"
[access]
tokens = "/etc/tokens.json"
peer_calls = "plain"
[access.limits]
requests_per_s = 2000
[access.oidc]
issuer = "https://id.example.org"
audience = "twinlog"
jwks_url = "https://id.example.org/keys"
[access.oidc.grants]
"dba" = "admin:* reader:*"
[peer]
site = "b"
url = "http://gateway-b.example.org:9401"
[dfs.own]
path = "/mnt/site-a/twinlog"
[dfs.peer]
path = "/mnt/site-b/twinlog"
[coordinator]
url = "postgresql+psycopg://witness.example.org/twinlog"
"""
_OPERATOR_FILE = """
pair = "orders"
[sites.a]
url = "https://a.example.org:8401"
[sites.b]
url = "https://b.example.org:8401"
[monitor]
"""


def targets() -> list[Target]:
    folder = Path(tempfile.mkdtemp(prefix="twinlog-fuzz-"))
    return [
        Target("claim", _claim, _read_claim, (DamagedLog,), _encode, structure="json"),
        Target(
            "register in SQL",
            lambda chance: _encode(_state(chance)),
            lambda data: sql._decoded(_text(data)),
            (Refused,),
            _encode,
            structure="json",
        ),
        *(
            _of_journal(name, sample, to)
            for name, sample, to in (
                ("operation", _OPERATION, sql_journal._to_operation),
                ("step", _STEP, sql_journal._to_step),
                ("history", _ENTRY, sql_journal._to_entry),
            )
        ),
        Target(
            "configuration of a site",
            lambda chance: _SITE_FILE.encode(),
            _file(folder / "site.toml", partial(load_site_config, environ={})),
            (ConfigError,),
        ),
        Target(
            "configuration of an operator",
            lambda chance: _OPERATOR_FILE.encode(),
            _file(folder / "operator.toml", partial(load_operator_config, environ={})),
            (ConfigError,),
        ),
        Target("address of a pair", _address, lambda data: resolve_address(_text(data)), (InvalidInput, ConfigError)),
        Target(
            "line of the trail",
            lambda chance: _lines(chance, 1).rstrip(b"\n"),
            read_line,
            again=lambda line: b"" if line is None else b'{"sha256":"%b","entry":%b}' % (line.sha256.encode(), line.content),
        ),
        Target("file of the trail", lambda chance: _lines(chance, chance.choice((1, 3, 5))), _read_trail),
        Target(
            "table of RocksDB",
            lambda chance: _pack(Table(b"schema", 5, 9)),
            decode_table,
            (EngineFailed,),
            _pack,
            structure="msgpack",
        ),
        Target(
            "epoch of RocksDB",
            lambda chance: _pack(EpochEntry(3, 20, 19, "a", "takeover")),
            decode_epoch,
            (EngineFailed,),
            _pack,
            structure="msgpack",
        ),
        Target(
            "outcome of an idempotency key",
            lambda chance: _pack(RequestOutcome(chance.randbytes(16), 3, 40, 1 << 50, 1, False)),
            decode_outcome,
            (EngineFailed,),
            _pack,
            structure="msgpack",
        ),
        Target(
            "watermark of RocksDB",
            lambda chance: pack_applied(40, 3, 1 << 50),
            unpack_applied,
            (EngineFailed,),
            lambda read: pack_applied(*read),
        ),
        Target(
            "note of unshown changes",
            lambda chance: _pack({7: (3, 40)}),
            unshown_upto,
            (EngineFailed,),
            _pack,
            structure="msgpack",
        ),
        Target("names in a log", _name, _read_name),
    ]


def _text(data: bytes) -> str:
    return data.decode("utf-8", "replace")


# ---- the DFS and the register
def _claim(chance: Random) -> bytes:
    return _encode(ClaimContent(chance.choice("ab"), "plan-1", "takeover", "the other site is lost: é", 1_700_000_000_000, 3))


def _read_claim(data: bytes) -> ClaimContent:
    async def read(path: str) -> bytes:
        return data

    dfs: Any = SimpleNamespace(read=read)
    return driven(read_claim(dfs, _LAYOUT, 4))


def _state(chance: Random) -> PairState:
    switching = Switching("plan-1", "b", 4, "takeover", 5) if chance.random() < 0.5 else None
    return PairState(9, 3, 4, "a", "plan-0", "async", 40, switching, 5, Beat(40, 5, 1.5), "é", "a", 0, "0123456789abcdef", 1)


def _name(chance: Random) -> bytes:
    paths = (
        wal_name(3, 7),
        remote_name(wal_name(3, 7), 2),
        _LAYOUT.claim(3),
        f"{_LAYOUT.folder}/{3:012d}/{remote_name(wal_name(3, 7), 2)}",
    )
    return chance.choice(paths).encode()


def _read_name(data: bytes) -> Any:
    """Each name that is read as the product's own is one that it would write."""
    name = _text(data)
    wal, remote, epoch = parse_wal_name(name), parse_remote_name(name), RemoteLayout.parse_epoch(name)
    assert wal is None or wal_name(*wal) == name, (wal, name)
    assert remote is None or remote_name(*remote) == name, (remote, name)
    assert epoch is None or f"{epoch:012d}" == name, (epoch, name)
    return wal, remote, epoch, _LAYOUT.parse(name)


# ---- the journal
def _of_journal(name: str, sample: msgspec.Struct, to: Callable[[Any], Any]) -> Target:
    """A row of the journal, as the columns that the database gives."""

    def read(data: bytes) -> Any:
        try:
            columns = msgspec.json.decode(data, type=dict[str, Any])
        except (msgspec.MsgspecError, ValueError, RecursionError):
            return None  # the database gives rows, whatever their values are
        row: Any = SimpleNamespace(_mapping={key: None if value is None else value for key, value in columns.items()})
        return decoded(
            to, sql_journal._fields(row) | ({"steps": []} if name == "operation" else {}), sql_journal._damaged
        )

    without = "steps" if name == "operation" else ""
    return Target(
        f"{name} of the journal",
        lambda chance: dumped(sql_journal._columns(sample, without=without)),
        read,
        (DamagedLog,),
        structure="json",
    )


# ---- configurations
def _file(path: Path, load: Callable[[Path], Any]) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        path.write_bytes(data)
        return load(path)

    return read


def _address(chance: Random) -> bytes:
    return chance.choice(
        (
            b"twinlog://shop?a=http://127.0.0.1:8401&b=https://[::1]:8402",
            b"http://a.example:1,https://b.example:2/",
            b"twinlog://shop?a=http://x",
        )
    )


# ---- the trail
def _lines(chance: Random, count: int) -> bytes:
    before, made = NO_LINE, b""
    for number in range(1, count + 1):
        what: dict[str, Any] = (
            {"before": before.hex(), "leftovers": []} if number == 1 else {"kind": "failover", "é": [1, None]}
        )
        entry = TrailEntry(
            number,
            1_700_000_000_000,
            OPENED if number == 1 else "operation.begun",
            Who("ann", "token", "::1", "ann@host"),
            "begun",
            what,
        )
        line, head = line_of(entry, before)
        made, before = made + line, head.digest
    return made


def _read_trail(data: bytes) -> Any:
    list(anchors_in(data.split(b"\n"), "a"))
    verifier = ChainVerifier()
    verifier.file(file_name(1), data)
    verifier.file(file_name(2), data)
    return verifier.end()
