"""`twinlog log`: what lies in a site's logs, read from their files."""

from __future__ import annotations

import base64
import gc
import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gateway.cli import log
from gateway.demo.files import write_files
from storage.log.frame import Frame, make_frame
from storage.log.record import Record, RecordKind, SchemaChange
from storage.log.segment import (
    SegmentHeader,
    SegmentScan,
    encode_frames,
    encode_header,
    encrypted,
    remote_name,
    scan_segment,
    wal_name,
)
from storage.rows.codec import RowCodec
from storage.rows.schema import encode_schema, parse_table
from tests.gateway.cli.cli_rig import invoke
from tests.storage.log.keys import log_key, ring


def whole(seq: int, epoch: int = 1) -> Frame:
    return make_frame(
        epoch=epoch, first_seq=seq, previous=seq - 1, timestamp=(1_700_000_000_000 << 16) + seq, committed=seq - 1,
        records=[Record(RecordKind.UPSERT, 1, b"k%d" % seq, b"\x81\x03\xa1x")],
    )


def frames(count: int, epoch: int = 1) -> list[Frame]:
    return [whole(seq, epoch) for seq in range(1, count + 1)]


def segment(path: Path, index: int, stored: list[Frame]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    header = SegmentHeader(0, stored[0].epoch, stored[0].first_seq, wal_name(stored[0].epoch, index))
    path.write_bytes(encode_header(header) + b"".join(frame.data for frame in stored) + bytes(500))


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    """A site's configuration with two WAL segments and a remote one behind it."""
    path = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb")["a"]
    made = frames(6)
    segment(tmp_path / "a/data/wal" / wal_name(1, 1), 1, made[:4])
    segment(tmp_path / "a/data/wal" / wal_name(1, 2), 2, made[4:])
    segment(tmp_path / "b/dfs/demo/0/000000000001" / remote_name(wal_name(1, 1), 1), 1, made[2:])
    return path


def test_logs_are_listed_shown_and_verified_without_a_gateway(logs: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    config = ("--config", str(logs))
    listed = json.loads(invoke("log", "ls", *config, "--json").stdout)["segments"]
    found = [(one["place"], one["first_seq"], one["last_seq"]) for one in listed]
    assert found == [("wal", 1, 4), ("wal", 5, 6), ("peer", 3, 6)]
    shown = invoke("log", "ls", *config).stdout
    assert "1 - 4" in shown
    assert shown.startswith("Segments of pair demo, as site a sees it"), "another pair's segments have the same names"
    records = invoke("log", "cat", *config, "--from", "3", "--to", "4", "--records", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in records] == [3, 4]
    assert json.loads(records[0])["value"] == {"3": "x"}
    assert invoke("log", "cat", *config, "--limit", "2").stdout.count("epoch 1") == 2
    result = invoke("log", "verify", *config)
    assert (result.exit_code, "sound: 3 segments, 10 frames" in result.stdout) == (0, True)


def test_encrypted_logs_are_read_with_the_keys_of_the_file_and_a_missing_one_is_no_damage(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "160")
    config = ("--config", str(logs))
    for path, keys in ((tmp_path / "a/data/wal" / wal_name(1, 2), "w1"), (next(tmp_path.glob("b/dfs/demo/0/*/*")), "k1")):
        scan = scan_segment(path.read_bytes(), path.name)
        assert scan.header is not None
        header, cipher = encrypted(scan.header, ring(keys))
        head = encode_header(header)
        path.write_bytes(head + encode_frames(scan.frames, 1, len(head), cipher) + bytes(500))
    listed = json.loads(invoke("log", "ls", *config, "--json").stdout)["segments"]
    assert [(one["key_id"], one["frames"]) for one in listed] == [(None, 4), ("w1", 0), ("k1", 0)]
    assert "no key for w1" in invoke("log", "ls", *config).stdout
    assert "damage" not in invoke("log", "ls", *config).stdout
    result = invoke("log", "verify", *config, "--json")
    faults = json.loads(result.stdout)["faults"]
    assert (result.exit_code, [fault["code"] for fault in faults]) == (1, ["key-unavailable"] * 2)
    assert "encrypted with the key 'w1', which wal.encryption_keys does not have" in faults[0]["message"]
    assert "which remote_log.encryption_keys does not have" in faults[1]["message"]
    for key in ("w1", "k1"):
        (tmp_path / "a" / f"{key}.key").write_text(base64.b64encode(log_key(key).secret).decode())
    with logs.open("a") as file:
        file.write('\n[wal]\nencryption_keys = ["w1=file:w1.key", "plain"]\n')
        file.write('\n[remote_log]\nencryption_keys = ["k1=file:k1.key"]\n')
    result = invoke("log", "verify", *config)
    assert (result.exit_code, "sound: 3 segments, 10 frames" in result.stdout) == (0, True), result.stdout
    records = invoke("log", "cat", *config, "--from", "5", "--records", "--json").stdout.splitlines()
    assert [json.loads(line)["seq"] for line in records] == [5, 6]
    shown = invoke("config", "show", *config).stdout
    assert "w1=***" in shown
    assert base64.b64encode(log_key("w1").secret).decode() not in shown


@pytest.mark.parametrize("verb", [("ls",), ("cat", "--limit", "0")])
def test_a_log_is_looked_into_a_file_at_a_time(
    logs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, verb: tuple[str, ...]
) -> None:
    """Frames that are in memory whenever the next file is read: of the file before, at most."""
    held: list[int] = []
    scan = log.scan_segment

    def counted(*args: Any) -> SegmentScan:
        held.append(sum(isinstance(each, Frame) for each in gc.get_objects()))
        return scan(*args)

    wal = tmp_path / "a/data/wal"
    for index in range(3, 9):
        segment(wal / wal_name(1, index), index, [whole(7 + 4 * (index - 3) + n) for n in range(4)])
    monkeypatch.setattr(log, "scan_segment", counted)
    gc.collect()
    gc.freeze()
    try:
        assert invoke("log", *verb, "--config", str(logs), "--place", "wal").exit_code == 0
    finally:
        gc.unfreeze()
    assert len(held) == 8
    assert max(held) <= 4


def test_verify_names_file_and_offset_of_damage_and_tells_it_from_a_torn_tail(logs: Path, tmp_path: Path) -> None:
    last = tmp_path / "a/data/wal" / wal_name(1, 2)
    whole = last.read_bytes()
    last.write_bytes(whole[:-500 - 10])
    torn = invoke("log", "verify", "--config", str(logs), "--json")
    summary = json.loads(torn.stdout)
    assert torn.exit_code == 0
    assert [(each["file"], each["offset"]) for each in summary["remarks"]] == [(str(last), 64 + len(frames(5)[4].data))]
    first = tmp_path / "a/data/wal" / wal_name(1, 1)
    data = bytearray(first.read_bytes())
    data[64 + 70] ^= 1
    first.write_bytes(data)
    damaged = invoke("log", "verify", "--config", str(logs), "--json")
    fault = json.loads(damaged.stdout)["faults"][0]
    assert damaged.exit_code == 1
    assert (fault["code"], fault["file"], fault["offset"]) == ("damaged-log", str(first), 64)
    assert "damaged at 64" in invoke("log", "ls", "--config", str(logs)).stdout


def test_verify_sees_a_gap_that_neither_log_closes(logs: Path, tmp_path: Path) -> None:
    (tmp_path / "a/data/wal" / wal_name(1, 1)).unlink()
    assert invoke("log", "verify", "--config", str(logs)).exit_code == 0, "trimmed at the front"
    (remote,) = (tmp_path / "b/dfs/demo/0/000000000001").iterdir()
    remote.unlink()
    segment(tmp_path / "a/data/wal" / wal_name(1, 1), 1, frames(2))
    gap = invoke("log", "verify", "--config", str(logs), "--json")
    assert gap.exit_code == 1
    (fault,) = json.loads(gap.stdout)["faults"]
    first = tmp_path / "a/data/wal" / wal_name(1, 1)
    assert (fault["code"], fault["file"], fault["offset"]) == ("damaged-log", str(first), first.stat().st_size - 500)


def test_cat_shows_modes_barriers_tables_and_keys_in_words(tmp_path: Path) -> None:
    path = write_files(tmp_path, {"a": 8401, "b": 8402}, engine="rocksdb")["a"]
    columns = [{"name": "id", "type": "int64"}, {"name": "text", "type": "string"}]
    table = parse_table({"name": "notes", "primary_key": ["id"], "columns": columns}, table_id=7)
    key, value = RowCodec(table).encode_json_row({"id": 42, "text": "x"})
    change = msgspec.msgpack.encode(SchemaChange("put", 7, encode_schema(table), 0))
    records = [
        Record(RecordKind.DDL, 7, b"", change), Record(RecordKind.UPSERT, 7, key, value),
        Record(RecordKind.MODE, value=b"async"), Record(RecordKind.BARRIER, key=b"before-upgrade"),
        Record(RecordKind.DELETE, 8, b"k1"),
    ]
    made = make_frame(epoch=1, first_seq=1, previous=0, timestamp=1_700_000_000_000 << 16, committed=0, records=records)
    segment(tmp_path / "a/data/wal" / wal_name(1, 1), 1, [made])
    cat = ("log", "cat", "--config", str(path), "--records")
    shown = invoke(*cat).stdout
    for words in ("UPSERT notes 42", 'MODE "async"', "BARRIER before-upgrade", "DELETE table 8 0x6b31"):
        assert words in shown, shown
    found = [json.loads(line) for line in invoke(*cat, "--json").stdout.splitlines()]
    assert (found[1]["name"], found[1]["row"], found[1]["key"]) == ("notes", "42", key.hex())
