"""The commands of the scenarios that are about rows and tables (scenario.py), as a client sends them, and what a site holds.

`rows`, `count`, `same` and `logged` look into a site's storage or logs, whatever its role; everything else goes the way of a
client.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import time
from pathlib import Path
from typing import Any

from gateway.service.port import Condition, Mutation, WriteRequest, WriteResult
from gateway.service.receipts import decode_receipt
from remote_log.dfs.directory import DirectoryDfs
from remote_log.fencing.reading import segments_below
from remote_log.layout import RemoteLayout
from storage.log.chain import gaps
from storage.log.frame import Frame
from storage.log.segment import scan_segment
from storage.rows.codec import RowCodec
from storage.rows.schema import TableSchema
from tests.pair.pair import OTHER
from tests.pair.scenarios.scenario import outcome
from tests.pair.scenarios.sites import TABLE, ScriptedFailpoints, SiteCommands, options
from tests.storage.engines.kept_reading import read_kept
from twinlog.errors import DfsNotFound, TwinlogError

BATCH = 100
TRAFFIC_DEADLINE_S = 0.2


class PairCommands(SiteCommands):
    """All commands."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        self._results: dict[str, WriteResult] = {}
        self._served: dict[str, list[float]] = {}  # site -> when its traffic was answered

    # ---- rows, as a client
    def _encode(self, table: TableSchema, key: str, value: str | None) -> tuple[bytes, bytes]:
        codec = RowCodec(table)
        if value is None:
            return codec.encode_key({"k": key}), b""
        names = [column.name for column in table.value_columns]
        return codec.encode_json_row({"k": key, **dict(zip(names, value.split("/"), strict=False))})

    async def _write(self, op: str, words: list[str], value_words: int) -> str:
        site, key, *rest = words
        value = rest[0] if value_words else None
        given = options(rest[value_words:], "within", "as", "once", "at-version-of")
        service = self._at(site).service
        table = service.tables.get("t")
        row_key, row_value = self._encode(table, key, value)
        conditions = []
        if "at-version-of" in given:
            conditions.append(Condition(row_key, version=self._results[given["at-version-of"]].version))
        digest = hashlib.sha256(row_key + row_value).digest() if "once" in given else b""
        request = WriteRequest(table, [Mutation(op, row_key, row_value)], conditions, given.get("once"), digest)
        within_s = float(given["within"]) if "within" in given else None
        applied_seq = self._at(site).site.parts.engine.applied.seq
        result = await service.rows.write(request, within_s)
        if "as" in given:
            self._results[given["as"]] = result
        is_logged_before = decode_receipt(result.receipt).seq <= applied_seq
        return f"{result.mode} again" if is_logged_before else result.mode

    async def do_put(self, words: list[str]) -> str:
        """put SITE KEY VALUE [within S] [as NAME] [once IDEMPOTENCY-KEY] [at-version-of NAME]: `sync`, `async` or the error."""
        return await self._write("upsert", words, 1)

    async def do_insert(self, words: list[str]) -> str:
        return await self._write("insert", words, 1)

    async def do_update(self, words: list[str]) -> str:
        return await self._write("update", words, 1)

    async def do_delete(self, words: list[str]) -> str:
        return await self._write("delete", words, 0)

    async def do_fill(self, words: list[str]) -> str:
        """fill SITE COUNT BYTES: rows row0000 and so on, in requests of BATCH rows; how many were acknowledged `sync`."""
        service = self._at(words[0]).service
        table, count, size = service.tables.get("t"), int(words[1]), int(words[2])
        acknowledged = 0
        for first in range(0, count, BATCH):
            numbers = range(first, min(first + BATCH, count))
            rows = [self._encode(table, f"row{i:04d}", str(i).ljust(size, ".")) for i in numbers]
            result = await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value) for key, value in rows]))
            acknowledged += len(rows) if result.mode == "sync" else 0
        return str(acknowledged)

    def _value(self, table: TableSchema, key: bytes, value: bytes) -> str:
        row = RowCodec(table).decode_row(key, value)
        return "/".join(str(row[column.name]) for column in table.value_columns if row[column.name] is not None)

    async def do_get(self, words: list[str]) -> str:
        """get SITE KEY [stale]: the value, or `nothing`."""
        service = self._at(words[0]).service
        table = service.tables.get("t")
        row = await service.rows.read(table, self._encode(table, words[1], None)[0], stale=words[2:] == ["stale"])
        return "nothing" if row is None else self._value(table, row.key, row.value)

    async def do_get_as_of(self, words: list[str]) -> str:
        """get-as-of SITE KEY NAME: as it was at the version that the write NAME made."""
        service = self._at(words[0]).service
        table = service.tables.get("t")
        row = await service.rows.read(table, self._encode(table, words[1], None)[0], as_of=self._results[words[2]].version)
        return "nothing" if row is None else self._value(table, row.key, row.value)

    async def do_scan(self, words: list[str]) -> str:
        """scan SITE [stale]: `key=value` of all rows, or `nothing`."""
        service = self._at(words[0]).service
        table = service.tables.get("t")
        stale = words[1:] == ["stale"]
        rows = await service.rows.scan(table, None, None, reverse=False, limit=1000, stale=stale)
        return self._listed(table, rows)

    def _listed(self, table: TableSchema, rows: Any) -> str:
        codec = RowCodec(table)
        named = [f"{codec.decode_row(r.key, r.value)['k']}={self._value(table, r.key, r.value)}" for r in rows]
        return " ".join(named) or "nothing"

    async def do_later(self, words: list[str]) -> str:
        """later NAME NAME: `yes` when the version that the first write made is above that of the second."""
        first, second = (self._results[name].version for name in words)
        return "yes" if first > second else "no"

    async def do_receipt(self, words: list[str]) -> str:
        """receipt SITE NAME: survived, lost or unknown."""
        return str((await self._at(words[0]).service.rows.receipt(self._results[words[1]].receipt)).outcome)

    # ---- tables
    async def do_create(self, words: list[str]) -> str:
        _, created = await self._at(words[0]).service.tables.create({**TABLE, "name": words[1]})
        return "created" if created else "exists"

    async def do_alter(self, words: list[str]) -> str:
        """alter SITE add|drop COLUMN: the columns of t since."""
        added = [{"name": words[2], "type": "string"}]
        await self._at(words[0]).service.tables.alter("t", {"add": added} if words[1] == "add" else {words[1]: [words[2]]})
        return await self.do_columns(words[:1])

    async def do_drop(self, words: list[str]) -> str:
        await self._at(words[0]).service.tables.drop(words[1], confirm=words[1])
        return "dropped"

    async def do_tables(self, words: list[str]) -> str:
        return " ".join(sorted(table.name for table in self._at(words[0]).site.catalog.all()))

    async def do_columns(self, words: list[str]) -> str:
        return " ".join(column.name for column in self._at(words[0]).site.catalog.get("t").columns)

    # ---- what a site holds, whatever its role
    async def _stored(self, site: str) -> tuple[TableSchema, Any]:
        parts = self._at(site).site
        table = parts.catalog.get("t")
        return table, await parts.parts.engine.scan(table.id, None, None, reverse=False, limit=100_000)

    async def do_rows(self, words: list[str]) -> str:
        return self._listed(*await self._stored(words[0]))

    async def do_count(self, words: list[str]) -> str:
        return str(len((await self._stored(words[0]))[1]))

    async def do_same(self, words: list[str]) -> str:
        """same: `yes` when both sites have applied the same log and hold the same rows at the same versions."""
        a, b = self._at("a").site.parts.engine, self._at("b").site.parts.engine
        one, other = a.applied, b.applied
        if (one.epoch, one.seq) != (other.epoch, other.seq):
            return f"no, a is at {one.epoch}:{one.seq}, b at {other.epoch}:{other.seq}"
        if one.schemas() != other.schemas() or one.epochs != other.epochs:
            return "no, the tables or the epochs differ"
        for table in one.schemas():
            here, there = [await e.scan(table, None, None, reverse=False, limit=100_000) for e in (a, b)]
            differing = {row.key for row in set(here) ^ set(there)}
            if differing:
                return f"no, {len(differing)} rows of table {table} differ"
        return "yes"

    async def do_logged(self, words: list[str]) -> str:
        """logged SITE KEY VALUE: in which of its logs that row change is readable now: `local remote`, one, or `nowhere`."""
        site, key, value = words
        wanted = self._encode(self._at(site).site.catalog.get("t"), key, value)

        def among(frames: list[Frame]) -> bool:
            return any((record.key, record.value) == wanted for frame in frames for record in frame.records)

        found = ["local"] if among(await self._at(site).site.parts.wal.read_all()) else []
        found += ["remote"] if among(await self._remote_frames(site)) else []
        return " ".join(found) or "nowhere"

    async def do_whole_log(self, words: list[str]) -> str:
        """whole-log SITE: `yes` when whoever reads its WAL along comes to no gap, else the frame behind the first one."""
        missing = gaps(await self._at(words[0]).site.parts.wal.read_all())
        return repr(missing[0][1]) if missing else "yes"

    async def _remote_paths(self, site: str) -> tuple[DirectoryDfs, list[str]]:
        dfs = DirectoryDfs(self.pair.root / OTHER[site] / "dfs", "test")
        return dfs, await segments_below(dfs, RemoteLayout("test"), 10**6)

    async def _remote_frames(self, site: str) -> list[Frame]:
        """Returns the frames of the site's remote log, on the other site's DFS, those of an open segment too."""
        dfs, paths = await self._remote_paths(site)
        frames: list[Frame] = []
        for path in paths:
            try:
                frames += scan_segment(await dfs.read(path), path).frames
            except DfsNotFound:
                continue  # trimmed since the listing
        return frames

    async def do_remote_segments(self, words: list[str]) -> str:
        """remote-segments SITE: how many segments its remote log has on the other site's DFS."""
        return str(len((await self._remote_paths(words[0]))[1]))

    async def do_remote_log_on(self, words: list[str]) -> str:
        """remote-log-on SITE: whether its frames go to the remote log; the segment is there a moment before."""
        epoch = self._at(words[0]).site.active_epoch
        return "yes" if epoch is not None and epoch.modes.remote is not None else "no"

    async def do_remote_records(self, words: list[str]) -> str:
        """remote-records SITE: how many records its remote log has; how many segments they fill depends on the load."""
        return str(sum(frame.count for frame in await self._remote_frames(words[0])))

    async def do_local_records(self, words: list[str]) -> str:
        return str(sum(frame.count for frame in await self._at(words[0]).site.parts.wal.read_all()))

    async def do_trimmed(self, words: list[str]) -> str:
        """trimmed SITE: `yes` once its own log does not reach back to the start of its epoch."""
        parts = self._at(words[0]).site.parts
        return "yes" if (parts.wal.first_previous or 0) >= parts.engine.applied.epochs[-1].first_seq else "no"

    async def do_quarantine(self, words: list[str]) -> str:
        """quarantine SITE: the rows in its quarantine's manifests by operation, or `empty`."""
        folder = self.pair.root / words[0] / "quarantine"
        manifests = [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]
        return " ".join(key["operation"].lower() for manifest in manifests for key in manifest["keys"]) or "empty"

    async def do_conflicts(self, words: list[str]) -> str:
        """conflicts SITE: keys of the quarantined rows that the active did not have at the last merge, or `none`."""
        table = self._at(words[0]).site.catalog.get("t")
        _, any_value = self._encode(table, "", "")
        lists = [json.loads(path.read_text()) for path in sorted((self.pair.root / words[0] / "quarantine").glob("*.absent"))]
        rows = [row for listed in lists for row in listed["rows"]]
        return " ".join(RowCodec(table).decode_row(bytes.fromhex(row["key"]), any_value)["k"] for row in rows) or "none"

    # ---- barriers
    async def do_barrier(self, words: list[str]) -> str:
        """barrier SITE NAME: `taken`, `held` already, or the error."""
        _, is_new = await self._at(words[0]).service.barriers.take(words[1])
        return "taken" if is_new else "held"

    async def do_barriers(self, words: list[str]) -> str:
        """barriers SITE: the names that it holds, or `none`."""
        return " ".join(held.name for held in self._at(words[0]).service.barriers.all().barriers) or "none"

    async def do_kept(self, words: list[str]) -> str:
        """kept SITE NAME: the rows of t as another process finds them in the place of that barrier."""
        parts = self._at(words[0]).site
        parts.barrier_calls.get(words[1])
        table = parts.catalog.get("t")
        return self._listed(table, (await read_kept(parts.parts.engine, words[1])).rows[table.id])

    async def do_same_barrier(self, words: list[str]) -> str:
        """same-barrier NAME: `yes` when both sites hold it at the same point with the same content."""
        found = []
        for name in "ab":
            self._at(name).service.barriers.get(words[0])
            found.append(await read_kept(self._at(name).site.parts.engine, words[0]))
        return "yes" if found[0] == found[1] else "no"

    async def do_release(self, words: list[str]) -> str:
        await self._at(words[0]).service.barriers.release(words[1])
        return "released"

    # ---- traffic
    async def do_traffic(self, words: list[str]) -> str:
        """traffic SITE: reads and writes there without a pause, each answer noted with its time."""
        site = words[0]
        self._served[site] = []
        await outcome(self.do_put([site, "traffic", "0"]))

        async def repeat(command: str) -> None:
            service = self._at(site).service
            table = service.tables.get("t")
            key, value = self._encode(table, "traffic", "0")
            while True:
                try:
                    if command == "read":
                        await service.rows.read(table, key)
                    else:
                        await service.rows.write(WriteRequest(table, [Mutation("upsert", key, value)]), TRAFFIC_DEADLINE_S)
                    self._served[site].append(time.monotonic())
                except TwinlogError:
                    pass
                await asyncio.sleep(0.001)  # the pause between two requests of one client

        self._running += [asyncio.ensure_future(repeat(command)) for command in ("read", "write")]
        return "flows"

    async def do_answers(self, words: list[str]) -> str:
        """answers SITE: how many the traffic there has had."""
        return str(len(self._served[words[0]]))

    async def do_answers_after_opening(self, words: list[str]) -> str:
        """answers-after-opening SITE: how many the traffic at SITE has had since the other site opened its epoch."""
        points = self.pair.failpoints[OTHER[words[0]]]
        assert isinstance(points, ScriptedFailpoints)
        opened_s = points.reached_s["activation.open"]
        return str(sum(at_s > opened_s for at_s in self._served[words[0]]))
