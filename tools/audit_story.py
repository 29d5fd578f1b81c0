"""The audit's proof: four rows of site b are spoilt under its storage; compare reports exactly these, repair restores them.

Real processes and the real input, with the commands an operator would type; everything is stopped at the end. It prints what
it does, and exits non-zero when anything is found that was not planted, or not found that was. Needs Java 17.

With --writes-per-s, from the first comparison to the last, rows of the same table are changed, made and deleted at that rate:
all but those that are spoilt later. Each comparison is shown with the rows that were acknowledged while it ran.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import closing, nullcontext
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from chaos.servers.ports import free_ports
from gateway.demo.files import client_address
from gateway.load.sources import FLIGHTS, FLIGHTS_KEY, open_source
from spark_jobs.report.folder import FINDINGS, first_findings
from storage.engines.entries.write import VERSION_BYTES, pack_row, version_of
from storage.engines.rocks import layout
from storage.engines.rocks.opening import RocksSettings, open_database
from storage.engines.rocks.state import load_state
from storage.engines.rocks.view import RocksView
from storage.rows.codec import RowCodec
from storage.rows.schema import decode_schema
from tools.audit_writes import Target, Writes
from tools.story import TWINLOG, Story, StoryFailed, console

AUDIT_TIMEOUT_S = 900
START_S = 60
FAULTS = ("missing", "stale", "damaged", "extra")
PLANT_STEP = 500  # rows from one that is spoilt to the next, from the first on
QUIET_ROWS = 3000  # the first by key: nobody writes them any more
GAP_MAX_S = 5.0  # without a write, while a comparison under writes runs


class Planted(NamedTuple):
    """A row that was spoilt."""

    kind: str
    key: bytes


def main(given: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tools.audit_story", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rows", type=int, default=0, help="only the first so many flights; 0: all; 5,000 at least")
    parser.add_argument("--writes-per-s", type=int, default=0, help="so many rows a second are written all the time (0: none)")
    parser.add_argument("--compares", type=int, default=1, help="comparisons before a row is spoilt")
    options = parser.parse_args(given)
    done = "found what was planted, and nothing else; repaired; equal again"
    return told(lambda story: _tell(story, options.writes_per_s, options.compares), options.rows, done)


def told(tell: Callable[[Story], None], rows: int, done: str) -> int:
    """The exit code of a story that is played on a new pair in its own folder; `done` is said at its end. `rows`: 0: all."""
    with tempfile.TemporaryDirectory(prefix="twinlog-audit-") as folder:
        first, second = free_ports(2)
        story = Story(Path(folder), {"a": first, "b": second}, 0, rows)
        try:
            tell(story)
        except StoryFailed as error:
            console.print(f"[bold red]failed[/]: {error}", soft_wrap=True)
            return 1
        finally:
            story.stop_all()
    story.tell(f"[bold green]{done}[/]")
    return 0


def _tell(story: Story, writes_per_s: int, compares: int) -> None:
    story.open_the_pair()
    story.load()
    loader = story.processes["load"]
    story.until("the load is done", lambda: loader.poll() == 0, 600)
    _drained(story)
    run_audit(story, "log-audit", 0)
    with _writes(story, writes_per_s) if writes_per_s else nullcontext() as writes:
        for _ in range(compares):
            _compare(story, writes, 0)
        story.processes["b"].terminate()
        story.processes["b"].wait()
        planted = plant(story.directory / "b" / "data" / "engine" / "rocksdb")
        story.tell(f"site b stopped, and [red]{len(planted)} of its rows spoilt[/] under its storage: {', '.join(FAULTS)}")
        story.serve("b")
        story.until("b follows again", story.role_is("b", "STANDBY"), START_S)
        found = _compare(story, writes, 1)
        seen = sorted((row["kind"], row["key"]) for row in first_findings(found, 1000))
        if seen != sorted(planted):
            raise StoryFailed(f"planted {sorted(planted)}, found {seen}")
        repair = ("--set", f"audit={found}", "--set", "truth=a")
        run_audit(story, "repair", 1, *repair)
        if _counter(run_audit(story, "repair", 0, *repair, "--set", "write=yes"), "WRITTEN") != len(planted):
            raise StoryFailed("not every planted row was written")
        _compare(story, writes, 0)


def _writes(story: Story, writes_per_s: int) -> Writes:
    """On all rows of the table but the quiet ones, the first by key."""
    source = open_source(FLIGHTS, "", ()).rows
    rows = source.slice(0, story.rows or source.num_rows).sort_by(FLIGHTS_KEY[0]).slice(QUIET_ROWS).to_pylist()
    target = Target(FLIGHTS, FLIGHTS_KEY, "flight", "dep_delay")
    return Writes(client_address(story.urls), target, rows, writes_per_s)


def _compare(story: Story, writes: Writes | None, expected: int) -> Path:
    """Run it, and show what was written meanwhile. Raises StoryFailed when the writes stopped."""
    begin_s = time.monotonic()
    found = run_audit(story, "compare", expected)
    if writes is not None:
        written = writes.between(begin_s, time.monotonic())
        story.tell(
            f"  meanwhile [b]{written.rows:,} rows[/] written, {written.rows_per_s:,.0f} a second, longest gap "
            f"{written.longest_gap_s:.2f} s; {_counter(found, 'GOODROWS'):,} the same"
        )
        if written.longest_gap_s > GAP_MAX_S:
            raise StoryFailed(f"nothing was written for {written.longest_gap_s:.1f} s: that is no comparison under writes")
    return found


def plant(database_folder: Path) -> list[Planted]:
    """Spoil rows of a site that is stopped: one of each kind, among the quiet ones of its only table."""
    with closing(open_database(database_folder, RocksSettings())) as database:
        view = RocksView(database)
        state = load_state(view)
        ((number, table),) = state.tables.by_id.items()
        rows = list(islice(view.walk(layout.row_range(number)), 0, 4 * PLANT_STEP + 1, PLANT_STEP))
        prefix = layout.row_prefix(number)
        (gone, _), (old, stored), (bad, good), *_, (last, copied) = rows
        del database[gone]
        database[old] = pack_row(version_of(stored) - 1, stored[VERSION_BYTES:])
        database[bad] = good[:-1] + bytes((good[-1] ^ 1,))
        keys = RowCodec(decode_schema(table.schema)).keys
        values = list(keys.decode(last[len(prefix) :]))
        new = prefix + keys.encode([*values[:-1], _next(values[-1])])
        if database.get(new) is not None:
            raise StoryFailed(f"the key {new.hex()} is there already")
        database[new] = copied
        database.flush()
    at = len(prefix)
    return [Planted(kind, key[at:]) for kind, key in zip(FAULTS, (gone, old, bad, new), strict=True)]


def _next(value: Any) -> Any:
    return value + "~" if isinstance(value, str) else value + 1_000_000


def run_audit(story: Story, job: str, expected: int, *more: str) -> Path:
    """Run it; its folder. Raises StoryFailed when it does not end with the exit code `expected`."""
    configs = [str(story.directory / site / "site.toml") for site in ("a", "b")]
    command = [*TWINLOG, "audit", "run", job, "--config", configs[0], "--peer-config", configs[1],
               "--audits", str(story.directory / "audits"), "--json", *more]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=AUDIT_TIMEOUT_S)
    if done.returncode != expected:
        raise StoryFailed(f"{job} ended with {done.returncode}, not {expected}: {done.stdout}{done.stderr}")
    summary = json.loads(done.stdout)
    kinds = ", ".join(f"{count} {kind}" for kind, count in summary["kinds"].items()) or "nothing"
    story.tell(f"[green]{job}[/]: found {kinds}; took {summary['took_s']:.1f} s")
    path = Path(summary["path"])
    assert (path / FINDINGS).is_file()
    return path


def _counter(audit: Path, name: str) -> int:
    return int(json.loads((audit / "summary.json").read_text())["counters"].get(name, 0))


def _drained(story: Story) -> None:
    """Both sites at the same sequence, durably."""
    def same() -> bool:
        a, b = story.cluster("a"), story.cluster("b")
        return a is not None and b is not None and a["applied_seq"] == b["applied_seq"] >= a["committed_seq"]

    story.until("b has caught up", same, START_S)


if __name__ == "__main__":
    sys.exit(main())
