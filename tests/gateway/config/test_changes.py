"""Each setting says whether it can change while a gateway runs, and a comparison of two files goes by that."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from gateway.config.changes import differences, is_at_run_time, with_changes
from gateway.config.loading import load_site_config
from gateway.config.model import SiteConfig
from gateway.config.reading import keys, section_class
from storage.settings import AtRunTime, AtStart
from tests.gateway.config.test_config import GOOD, write

AT_RUN_TIME = {  # by hand beside the marks, so that a slip in either shows
    "policy", "available.degrade_after_s", "available.resync_after_s",
    "commit.queue_bytes_max", "commit.requests_max", "commit.frames_in_flight_max", "commit.frame_bytes_max",
    "replication.batch_bytes_max", "engine.flush_interval_s", "audits.recent_s", "switchover.lag_records_max",
    "backups.old_after_s",
    "switchover.lag_max_s", "access.certificates", "access.oidc.claim", "access.oidc.name", "access.oidc.grants",
    "access.limits.requests_per_s", "access.limits.bytes_per_s", "access.limits.concurrent",
    "access.oidc.login.client_secret", "access.oidc.login.scopes", "access.oidc.login.session_s", "log.level",
}
ACCESS = '[access]\npeer_calls = "plain"\n[access.certificates]\n"cn:ann" = "operator"\n'


def leaves(cls: type, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """(dotted key, annotation) of each setting of a site."""
    for name, (_, hint) in keys(cls).items():
        inner = section_class(hint)
        if inner is None:
            yield prefix + name, hint
        else:
            yield from leaves(inner, f"{prefix}{name}.")


def test_each_setting_says_whether_it_can_change_while_the_gateway_runs() -> None:
    """Whoever adds one puts RUN_TIME or RESTART among its marks (storage/settings.py)."""
    found = dict(leaves(SiteConfig))
    marks = {
        key: [mark for mark in typing.get_args(hint)[1:] if isinstance(mark, AtRunTime | AtStart)]
        for key, hint in found.items()
    }
    assert {key: said for key, said in marks.items() if len(said) != 1} == {}
    assert {key for key, hint in found.items() if is_at_run_time(hint)} == AT_RUN_TIME


def config(folder: Path, more: str = "", **top: str) -> SiteConfig:
    return load_site_config(write(folder, "".join(f'{key} = "{value}"\n' for key, value in top.items()) + GOOD + more), {})


def test_equal_files_differ_in_nothing(tmp_path: Path) -> None:
    assert list(differences(config(tmp_path, ACCESS), config(tmp_path, ACCESS))) == []


def test_what_can_change_is_told_apart_from_what_needs_a_restart(tmp_path: Path) -> None:
    before = config(tmp_path, ACCESS)
    after = config(tmp_path, ACCESS.replace("operator", "auditor") + "[http]\nport = 8501\n[log]\nlevel = 'debug'\n")
    found = {each.change.key: (each.change.before, each.change.after, each.at_run_time) for each in differences(before, after)}
    assert found == {
        "access.certificates": ('{"cn:ann":"operator"}', '{"cn:ann":"auditor"}', True),
        "http.port": ("8401", "8501", False), "log.level": ("info", "debug", True),
    }
    merged = with_changes(before, after)
    assert (merged.log.level, merged.http.port, merged.access) == ("debug", 8401, after.access)
    assert [each.change.key for each in differences(merged, after)] == ["http.port"]


def test_a_section_that_comes_or_goes_needs_a_restart_as_a_whole(tmp_path: Path) -> None:
    without, with_it = config(tmp_path), config(tmp_path, ACCESS)
    for before, after in ((without, with_it), (with_it, without)):
        [only] = differences(before, after)
        assert (only.change.key, only.at_run_time) == ("access", False)
        assert with_changes(before, after) == before


def test_no_secret_is_shown(tmp_path: Path) -> None:
    (tmp_path / "key").write_text("c" * 43 + "=")
    address = "postgresql+psycopg://user:{}@host/db"
    urls = tmp_path / "url"
    found = []
    for password in ("before", "after"):
        urls.write_text(address.format(password))
        found.append(config(tmp_path, f'[coordinator]\nurl = "file:{urls}"\n'))
    shown = str(list(differences(*found)))
    assert "coordinator.url" in shown
    assert "before@" not in shown
    assert "after@" not in shown


def test_what_no_file_can_say_stays(tmp_path: Path) -> None:
    running = replace(config(tmp_path), protect_resync_after_s=7.0)
    assert with_changes(running, config(tmp_path, "[log]\nlevel = 'debug'\n")).protect_resync_after_s == 7.0
