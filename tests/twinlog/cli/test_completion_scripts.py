"""The completion files of the wheel work in the shell that they are for: each is loaded as that shell loads it, then asked."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.needs import need_program
from tools.packaging.wheels import COMPLETIONS, completion
from twinlog.cli.main import all_verbs

BASH = 'source "$1"; COMP_WORDS=(twinlog $2); COMP_CWORD=$(($# > 1 ? ${#COMP_WORDS[@]} - 1 : 0)); ' \
    '_twinlog_completion twinlog; printf "%s\\n" "${COMPREPLY[@]}"'
# zsh's own parts of completion are stood in for: what the function hands to them is what a Tab shows.
ZSH = 'fpath=("${1:h}" $fpath); autoload -Uz _twinlog; compdef() { :; }; _arguments() { print -r -- "$@"; }; ' \
    'words=(twinlog ${=2}); CURRENT=$#words; _twinlog'
FISH = 'source $argv[1]; complete --do-complete "twinlog $argv[2]"'
SHELLS = {
    "bash": ("bash", "--norc", "--noprofile", "-c", BASH, "bash"), "zsh": ("zsh", "-f", "-c", ZSH, "zsh"),
    "fish": ("fish", "--no-config", "-c", FISH),
}


def offered(shell: str, folder: Path, line: str) -> str:
    """Returns what the shell shows for a Tab behind `twinlog LINE`."""
    need_program(shell, shell)
    file = folder / COMPLETIONS[shell]
    file.parent.mkdir(parents=True)
    file.write_text(completion(shell))
    environ = {**os.environ, "HOME": str(folder), "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        [*SHELLS[shell], str(file), line], env=environ, capture_output=True, text=True, check=False, timeout=300
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


@pytest.mark.parametrize("shell", SHELLS)
def test_verbs_are_offered(shell: str, tmp_path: Path) -> None:
    said = offered(shell, tmp_path, "re")
    shown = {verb for verb in all_verbs() if re.search(rf'(^|"){verb}(\s|"|$)', said, re.MULTILINE)}
    assert shown == {verb for verb in all_verbs() if verb.startswith("re")}


@pytest.mark.parametrize("shell", SHELLS)
def test_options_are_offered(shell: str, tmp_path: Path) -> None:
    said = offered(shell, tmp_path, "failover --acc")
    assert "--accept-data-loss" in said
    assert "--to" not in said


def test_zsh_finds_its_file_by_the_first_line() -> None:
    assert completion("zsh").splitlines()[0] == "#compdef twinlog"
