"""The pages about audits can be typed: options, settings, and the units of a scheduler."""

from __future__ import annotations

import configparser
import re
import shlex
import subprocess
from pathlib import Path

import pytest

from spark_jobs import run
from spark_jobs.audit.audit import JOBS
from tests.needs import need_program
from tools.sources import ROOT

PAGES = [ROOT / "README.md", ROOT / "docs" / "audits.md", ROOT / "docs" / "operations.md"]
AUDITS = (ROOT / "docs" / "audits.md").read_text(encoding="utf-8")
UNITS = re.findall(r"```ini\n# /etc/systemd/system/(\S+)\n(.*?)```", AUDITS, re.DOTALL)


def commands() -> list[str]:
    """Every `twinlog audit run` that a page shows whole, behind a pipe or `&&` cut off."""
    found = [line for page in PAGES for line in re.findall(r"twinlog audit run ([^`\n|&]+)", page.read_text(encoding="utf-8"))]
    return [line.strip() for line in found if not line.startswith("JOB")]


@pytest.mark.parametrize("command", sorted(set(commands())))
def test_a_command_of_a_page_has_the_options_and_settings_that_there_are(command: str) -> None:
    options = run.parser().parse_args(shlex.split(command, comments=True))
    assert set(run._pairs(options.set, "--set")) <= JOBS[options.job].settings.keys()


def test_the_pages_show_every_job() -> None:
    assert {command.split()[0] for command in commands()} >= JOBS.keys() - {"log-audit"}
    assert len(UNITS) == 2


def test_the_units_are_ones_that_systemd_takes(tmp_path: Path) -> None:
    """As they stand, but for the program, which has to be there."""
    analyze = need_program("systemd-analyze", "systemd")
    for name, unit in UNITS:
        (tmp_path / name).write_text(unit.replace("/opt/twinlog/bin/twinlog", "/bin/true"))
    done = subprocess.run(
        [analyze, "verify", *(str(tmp_path / name) for name, _ in UNITS)], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    (timer,) = [unit for name, unit in UNITS if name.endswith(".timer")]
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(timer)
    assert subprocess.run([analyze, "calendar", parsed["Timer"]["OnCalendar"]], check=False).returncode == 0
