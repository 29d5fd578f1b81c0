"""The rules by which logs become faults: of ends, stops, links and disks; and remarks about what logs do not show."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from chaos.harness.faults.registry import BY_NAME
from chaos.harness.incident.draft import Incident, incident, lines_of, shortened
from chaos.harness.incident.found import Found, together
from chaos.harness.incident.sources import read
from chaos.harness.incident.texts import for_the_harness, for_the_simulator
from chaos.harness.plan import parse
from switchover.operations.attempt import history_entry
from switchover.operations.document import Operation
from switchover.operations.sql_journal import SqlJournal
from tests.chaos.harness.incident.records import log_line, write_journal
from twinlog.errors import InvalidInput

Line = tuple[float, str, str, dict[str, Any]]
ASKED = {"id": "op-1", "to": "b", "actor": "ops@desk", "state": "succeeded", "wall_ms": 1_790_000_000_000 + 30_000}
SERVES = {"reads": True, "writes": True, "follows": False, "why": None}
LATE = {"about": "peer", "error": "the other site at http://b does not answer (TimeoutError: TimeoutError)"}


async def found_in(folder: Path, lines: list[Line], *asked: dict[str, Any]) -> Incident:
    """The incident of these lines, and of operations that both were asked for at b."""
    for site in "ab":
        own = [log_line(at_s, who, event, **fields) for at_s, who, event, fields in lines if who == site]
        (folder / f"{site}.log").write_text("".join(own) or log_line(0.0, site, "idle"))
    places = [("a", folder / "a.log"), ("b", folder / "b.log")]
    if asked:
        await write_journal(folder / "journal.db", list(asked))
        places.append(("b", folder / "journal.db"))
    return incident(await asyncio.to_thread(read, places))


def told(found: Incident) -> list[tuple[str, str, float | None]]:
    return [(each.kind, each.target, each.to_s and round(each.to_s - each.from_s, 1)) for each in found.faults]


OVER = ("trouble is over", {"about": "peer"})
STARTED: list[Line] = [(0.0, "a", "Started server process [7]", {}), (0.1, "b", "Started server process [8]", {}),
                       (0.5, "a", "role", {"role": "ACTIVE", "cause": "opened_sync"}), (0.6, "a", "serves", SERVES)]


async def test_a_start_without_an_end_is_that_of_a_killed_gateway(tmp_path: Path) -> None:
    found = await found_in(tmp_path, [*STARTED, (40.0, "a", "trouble", LATE), (50.0, "b", "Started server process [9]", {})])
    assert told(found) == [("crash", "b", 10.0)]
    assert "by then: a: a.log line 4" in found.faults[0].sources[1]


async def test_an_old_error_of_a_standby_is_no_witness_of_an_end(tmp_path: Path) -> None:
    way = {**LATE, "about": "way"}
    found = await found_in(tmp_path, [
        *STARTED, (20.0, "b", "trouble is over", {"about": "active"}), (20.1, "b", "trouble", way),
        (50.0, "a", "Started server process [9]", {}),
    ], {**ASKED, "kind": "failover"})
    assert told(found) == [("crash", "a", 22.0)], "two seconds before somebody asked for the failover at 30"


async def test_when_nobody_noticed_the_end_that_is_said(tmp_path: Path) -> None:
    found = await found_in(tmp_path, [*STARTED, (50.0, "b", "Started server process [9]", {})])
    assert told(found) == [("crash", "b", 2.0)]
    assert "nobody says when it ended" in found.faults[0].sources[1]


async def test_a_gateway_that_was_stopped_and_not_started_is_terminated_if_the_pair_went_on(tmp_path: Path) -> None:
    stop: Line = (20.0, "b", "stopping", {})
    assert told(await found_in(tmp_path, [*STARTED, stop, (25.0, "a", "trouble", LATE)])) == [("terminate", "b", None)]
    both = await found_in(tmp_path, [*STARTED, stop, (20.5, "a", "trouble", LATE), (22.0, "a", "stopping", {})])
    assert not both.faults
    assert [each.text.partition(",")[0] for each in both.remarks] == ["the pair is stopped"]
    asked = {**ASKED, "kind": "degrade", "to": None}
    (tmp_path / "journal.db").unlink(missing_ok=True)
    assert ("terminate", "b", None) in told(await found_in(tmp_path, [*STARTED, stop, (40.0, "a", "stopping", {})], asked))


async def test_an_active_that_answers_nobody_while_another_opens_ran_and_was_not_stopped(tmp_path: Path) -> None:
    opening: Line = (31.0, "b", "role", {"role": "DOWNGRADE_ACTIVE", "cause": "opened_async"})
    late: Line = (40.0, "a", "epoch ended", {"code": "fenced"})
    asked = {**ASKED, "kind": "failover"}
    assert told(await found_in(tmp_path, [*STARTED, opening, late], asked)) == [("pause", "a", 12.0)]
    soon: Line = (32.0, "a", "epoch ended", {"code": "fenced"})
    (tmp_path / "journal.db").unlink()
    assert not (await found_in(tmp_path, [*STARTED, opening, soon], asked)).faults


@pytest.mark.parametrize(("error", "kind"), [
    ("does not answer (TimeoutError: TimeoutError)", "black-hole"),  # so said earlier releases
    ("does not answer in time", "black-hole"),
    ("does not answer (connection refused)", "down"),
    ("does not answer (connection reset by peer)", "reset"),
    ("does not answer (ConnectionRefusedError: refused)", "down"),
    ("does not answer (ConnectionResetError: reset by peer)", "reset"),
])
async def test_a_link_is_broken_as_the_error_says(error: str, kind: str, tmp_path: Path) -> None:
    trouble = {"about": "peer", "error": f"the other site at http://b {error}"}
    found = await found_in(tmp_path, [*STARTED, (20.0, "a", "trouble", trouble), (27.0, "a", *OVER)])
    assert told(found) == [(kind, "a>b", 7.0)]


async def test_a_site_that_refuses_is_reached(tmp_path: Path) -> None:
    trouble = {"about": "peer", "error": "this site accepts no shipped frames now: it is SWITCHING"}
    found = await found_in(tmp_path, [*STARTED, (20.0, "a", "trouble", trouble), (27.0, "a", *OVER)])
    assert not found.faults


async def test_a_standby_that_misses_an_active_that_served_nobody_says_nothing_of_the_link(tmp_path: Path) -> None:
    silence: list[Line] = [(20.0, "b", "trouble", {"about": "active", "error": None}),
                           (26.0, "b", "trouble is over", {"about": "active"})]
    assert told(await found_in(tmp_path, [*STARTED, *silence])) == [("black-hole", "a>b", 11.0)]
    closed: Line = (14.0, "a", "serves", {**SERVES, "reads": False, "why": "site a is CLOSED"})
    assert not (await found_in(tmp_path, [*STARTED, closed, *silence])).faults
    new: Line = (19.0, "b", "role", {"role": "STANDBY", "cause": "follow"})
    assert not (await found_in(tmp_path, [*STARTED, new, *silence])).faults, "it has followed for a second"


async def test_what_both_sites_say_of_a_dfs_is_one_fault(tmp_path: Path) -> None:
    error = "cannot write to / below /srv/b: no answer within 5.0 s; check that disk"
    found = await found_in(tmp_path, [
        *STARTED,
        (20.0, "a", "trouble", {"about": "peer DFS", "error": error}), (24.0, "a", "trouble is over", {"about": "peer DFS"}),
        (21.0, "b", "trouble", {"about": "own DFS", "error": error}), (29.0, "b", "trouble is over", {"about": "own DFS"}),
    ])
    assert told(found) == [("disk-hangs", "b", 14.0)]
    assert len(found.faults[0].sources) == 2


async def test_what_cannot_be_told_is_a_remark(tmp_path: Path) -> None:
    why = "site a answers nobody: nothing reaches its remote log"
    found = await found_in(
        tmp_path,
        [
            *STARTED, (20.0, "a", "serves", {**SERVES, "reads": False, "why": why}), (26.0, "a", "serves", SERVES),
            (30.0, "a", "trouble", {"about": "own DFS", "error": "the NameNode is in safe mode"}),
            (40.0, "a", "role", {"role": "DOWNGRADE_ACTIVE", "cause": "downgrade_recorded"}),
            (50.0, "a", "trouble", {"about": "coordinator", "error": "refused"}),
            (53.0, "a", "trouble is over", {"about": "coordinator"}),
        ],
        {**ASKED, "kind": "failover", "options": {"accept_data_loss": "unknown"}, "events": ["abort asked"]},
    )
    remarks = "\n".join(each.text for each in found.remarks)
    for part in (
        "for 6.0 s, and what was broken is not said", "no kind of fault is known for a: a.log line 6", "by no command",
        "the coordinator was out of reach for 3.0 s", "accepted a loss", "the log ends, and this was not over",
    ):
        assert part in remarks
    text = for_the_harness(found)
    assert [(each.kind, each.target) for each in parse(text).faults] == [("failover", "b"), ("abort", "b")]
    assert "\nat 4.0 abort b\n" in for_the_simulator(found)
    only = replace(found, commands=[replace(each, kind="dance") for each in found.commands])
    assert "# no line of this plan: at 3.0 dance b\n" in for_the_harness(only)


async def test_what_a_site_did_by_itself_and_what_was_only_planned_is_no_command(tmp_path: Path) -> None:
    found = await found_in(
        tmp_path, STARTED, {**ASKED, "kind": "rejoin", "actor": "site b"},
        {**ASKED, "id": "op-2", "kind": "failover", "dry_run": True},
        {**ASKED, "id": "op-3", "kind": "degrade", "to": None, "state": "failed"},
    )
    assert [(each.kind, each.target) for each in found.commands] == [("degrade", "active")]
    assert found.commands[0].sources[1] == "it ended as failed: refused at step preflight"


def test_a_long_quiet_span_becomes_short_also_within_a_fault() -> None:
    plan_s, remarks = shortened([100.0, 110.0, 110.0 + 11_520.0, 110.0 + 11_525.0])
    assert [plan_s(at_s) for at_s in (100.0, 110.0, 11_630.0, 11_635.0)] == [3.0, 13.0, 18.0, 23.0]
    assert [each.text for each in remarks] == ["3 h 12 min without an event became 5 s"]
    found = Incident([Found(100.0, "crash", "a", ("x",), 7_300.0)], [], [])
    assert lines_of(found, BY_NAME) == ["# x", "at 3.0 crash a for 5.0", "# 2 h without an event became 5 s"]


def test_faults_that_nearly_touch_are_one() -> None:
    one, other = Found(1.0, "reset", "a>b", ("x",), 2.0), Found(2.5, "reset", "a>b", ("y",), 4.0)
    assert together([other, one]) == [Found(1.0, "reset", "a>b", ("x", "y"), 4.0)]
    assert len(together([one, Found(3.5, "reset", "a>b", ("y",), 4.0), Found(2.5, "down", "a>b", ("y",), 4.0)])) == 3


def test_places_without_anything_to_read_are_refused(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("nothing\n")
    for place, words in ((tmp_path, "has no journal.db and no log"), (tmp_path / "none.log", "cannot be read"),
                         (tmp_path / "notes.txt", "no event and no operation was found")):
        with pytest.raises(InvalidInput, match=words):
            read([("a", place)])
    (tmp_path / "b.log").write_text(log_line(1.0, "b", "serving") + "Traceback\n")
    with pytest.raises(InvalidInput, match="is the log of site b, not of site a"):
        read([("a", tmp_path / "b.log")])
    assert read([("b", tmp_path / "b.log")]).unread == 1
    (tmp_path / "journal.db").write_bytes(b"SQLite format 3\0" + bytes(200))
    with pytest.raises(InvalidInput, match="cannot be read as the journal of a site"):
        read([("b", tmp_path)])


async def test_what_a_gateway_wrote_last_is_read_while_it_runs(tmp_path: Path) -> None:
    journal = SqlJournal(f"sqlite:///{tmp_path / 'journal.db'}")
    try:
        operation = Operation("op-1", "switchover", "b", {}, "ops@desk", 1_790_000_000_000, (), state="succeeded")
        await journal.create(operation, history_entry(operation, 1_790_000_000_000, "started", "ops@desk"))
        record = await asyncio.to_thread(read, [("b", tmp_path / "journal.db")])
    finally:
        await journal.close()
    assert [(each.kind, each.to, each.ended) for each in record.asked] == [("switchover", "b", "succeeded")]
