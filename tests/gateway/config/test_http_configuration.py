"""The configuration of a running site over HTTP: by an operator alone, and with a line in the trail."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from gateway.config.loading import load_site_config
from gateway.config.running import RunningConfiguration
from gateway.trail.entry import TrailEntry, Who
from tests.gateway.config.test_config import GOOD, write
from tests.gateway.door_client import DoorClient, problem, served_door
from tests.gateway.trail.trail_rig import entries, opened, stored, until
from tests.storage.disk.memory_files import MemoryFiles

RELOAD, LOG_LEVEL = "/v1/configuration:reload", "/v1/configuration:log-level"


@pytest.fixture
def files() -> MemoryFiles:
    return MemoryFiles()


@pytest.fixture
async def door(tmp_path: Path, files: MemoryFiles) -> AsyncIterator[DoorClient]:
    file = write(tmp_path, GOOD)
    configuration = RunningConfiguration(
        load_site_config(file, {}), file, lambda config: None, lambda path: load_site_config(path, {})
    )
    async with opened(files) as trail, served_door(trail=trail, configuration=configuration) as door:
        yield door


async def lines(files: MemoryFiles, count: int) -> list[TrailEntry]:
    def found() -> list[TrailEntry]:
        return [entry for entry in entries(stored(files)) if entry.event.startswith("configuration.")]

    await until(lambda: len(found()) >= count)
    return found()


async def test_a_reload_says_what_changed_and_what_needs_a_restart_and_is_in_the_trail(
    door: DoorClient, tmp_path: Path, files: MemoryFiles
) -> None:
    write(tmp_path, GOOD + "[log]\nlevel = 'debug'\n[http]\nport = 8501\n")
    answer = await door.http.post(RELOAD)
    assert answer.json() == {
        "site": "a", "changed": [{"key": "log.level", "before": "info", "after": "debug"}],
        "needs_restart": [{"key": "http.port", "before": "8401", "after": "8501"}],
    }
    begun, done = await lines(files, 2)
    assert (begun.outcome, begun.who.name) == ("begun", Who("anonymous", "anonymous").name)
    assert (done.outcome, done.of) == ("done", begun.number)
    assert done.what == {"changed": {"log.level": "info -> debug"}, "needs_restart": ["http.port"]}


async def test_a_faulty_file_is_refused_with_its_faults(door: DoorClient, tmp_path: Path, files: MemoryFiles) -> None:
    path = write(tmp_path, GOOD + "[log]\nlevel = 'loud'\n")
    document = problem(await door.http.post(RELOAD), 409, "config-error")
    assert [(fault["file"], fault["key"]) for fault in document["faults"]] == [(str(path), "log.level")]
    assert [line.outcome for line in await lines(files, 2)] == ["begun", "refused"]


async def test_a_log_level_is_one_of_four(door: DoorClient, files: MemoryFiles) -> None:
    assert (await door.http.post(LOG_LEVEL, json={"level": "debug"})).json()["changed"][0]["after"] == "debug"
    problem(await door.http.post(LOG_LEVEL, json={"level": "loud"}), 422, "invalid-input")
    assert [line.outcome for line in await lines(files, 4)] == ["begun", "done", "begun", "refused"]


async def test_nothing_changes_unseen(door: DoorClient, tmp_path: Path, files: MemoryFiles) -> None:
    """A trail that cannot be written stops a reload, for it may change who is let in; not a log level."""
    files.full = True
    write(tmp_path, GOOD + "[log]\nlevel = 'debug'\n")
    problem(await door.http.post(RELOAD), 503, "unavailable")
    assert (await door.http.post(LOG_LEVEL, json={"level": "debug"})).json()["changed"][0]["before"] == "info"
