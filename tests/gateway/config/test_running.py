"""A reload takes what can change, names the rest, and takes nothing of a file with a fault."""

from __future__ import annotations

from pathlib import Path

import pytest

from gateway.config.loading import load_site_config
from gateway.config.model import SiteConfig
from gateway.config.running import RunningConfiguration
from tests.gateway.config.test_config import GOOD, write
from twinlog.errors import ConfigError, InvalidInput

COORDINATOR = '[coordinator]\nurl = "sqlite:////tmp/c.db"\n'


class Site:
    """The file of a site, and what was put into effect of it."""

    def __init__(self, folder: Path, more: str = "") -> None:
        self.folder, self.applied = folder, list[SiteConfig]()
        self.file = self.write(more)
        self.configuration = RunningConfiguration(load_site_config(self.file, {}), self.file, self.applied.append, self.read)

    def write(self, more: str) -> Path:
        return write(self.folder, more if more.startswith("policy") else GOOD + more)

    def read(self, path: Path) -> SiteConfig:
        return load_site_config(path, {})


async def test_what_can_change_does_and_the_rest_is_named(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.write("[log]\nlevel = 'warning'\n[http]\nport = 8501\n")
    done = await site.configuration.reload()
    assert [change.key for change in done.changed] == ["log.level"]
    assert [change.key for change in done.needs_restart] == ["http.port"]
    assert [(config.log.level, config.http.port) for config in site.applied] == [("warning", 8401)]
    assert site.configuration.notices() == [
        f"{site.file} differs from what runs here in http.port: a restart makes it so"
    ]
    again = await site.configuration.reload()
    assert (again.changed, len(again.needs_restart), len(site.applied)) == ([], 1, 1)


@pytest.mark.parametrize(("text", "key"), [
    ("[log]\nlevel = 'loud'\n", "log.level"), ("[http\n", ""), ("[htp]\nport = 1\n", "htp"),
])
async def test_a_file_with_a_fault_changes_nothing_and_is_named_with_its_key(tmp_path: Path, text: str, key: str) -> None:
    site = Site(tmp_path)
    running = site.configuration.running
    site.write("[engine]\nflush_interval_s = 9.0\n" + text)
    with pytest.raises(ConfigError) as caught:
        await site.configuration.reload()
    assert {(fault["file"], fault["key"]) for fault in caught.value.fields["faults"]} == {(str(site.file), key)}  # type: ignore[attr-defined]
    assert (site.applied, site.configuration.running) == ([], running)


async def test_a_file_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    site = Site(tmp_path)
    site.file.unlink()
    with pytest.raises(ConfigError, match="1 fault"):
        await site.configuration.reload()
    assert site.applied == []


async def test_a_change_that_needs_what_only_a_restart_brings_is_refused(tmp_path: Path) -> None:
    """The file as a whole is sound; what would run by it until the next start is not."""
    site = Site(tmp_path)
    site.write("policy = 'available'\n" + GOOD + COORDINATOR)
    with pytest.raises(ConfigError, match="restart the gateway") as caught:
        await site.configuration.reload()
    assert [fault["key"] for fault in caught.value.fields["faults"]] == ["policy"]  # type: ignore[attr-defined]
    assert site.applied == []


async def test_a_log_level_by_command_lasts_until_the_next_reload(tmp_path: Path) -> None:
    site = Site(tmp_path)
    done = site.configuration.log_level("debug")
    assert [(change.key, change.before, change.after) for change in done.changed] == [("log.level", "info", "debug")]
    assert site.configuration.log_level("debug").changed == []
    await site.configuration.look()
    assert "log.level: `twinlog config reload` makes it so" in site.configuration.notices()[0]
    await site.configuration.reload()
    assert [config.log.level for config in site.applied] == ["debug", "info"]
    assert site.configuration.notices() == []
    with pytest.raises(InvalidInput, match="debug, info, warning, error"):
        site.configuration.log_level("loud")


async def test_the_file_is_compared_when_it_changes(tmp_path: Path) -> None:
    site = Site(tmp_path)
    await site.configuration.look()
    assert site.configuration.notices() == []
    site.write("[lease]\nlease_s = 2.0\n")
    await site.configuration.look()
    assert "differs from what runs here in lease.lease_s: a restart" in site.configuration.notices()[0]
    site.write("[lease]\nlease_s = 'long'\n")
    await site.configuration.look()
    assert "the next start would fail" in site.configuration.notices()[0]
    assert "lease.lease_s" in site.configuration.notices()[0]
    site.write("")
    await site.configuration.look()
    assert site.configuration.notices() == []
