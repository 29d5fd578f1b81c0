"""`make wheels`: the wheel and the source archive of both distributions, with manual pages and shell completions.

What always holds: they are built from a copy of the files that git knows, so that nothing else of the checkout gets in; two
builds of one commit are equal, byte for byte: every time in them is that of the commit (SOURCE_DATE_EPOCH), and every mode and
owner is the same. Manual pages and completions are made here, of the command line as it is, and are not kept in the repository.
"""

from __future__ import annotations

import argparse
import gzip
import io
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import tomllib
from collections.abc import Iterable
from datetime import UTC, datetime
from pathlib import Path

from tools.laws.import_law import PACKAGES
from tools.packaging import man_pages
from tools.sources import ROOT, repository_files
from twinlog.cli.main import all_verbs
from twinlog.cli.verbs import VERBS

OUT = ROOT / "build" / "wheels"
SERVER_FILES = ("pyproject.toml", "README.md", "LICENSE", *(set(PACKAGES) - {"twinlog"}))
COMPLETIONS = {
    "bash": "bash-completion/completions/twinlog", "zsh": "zsh/site-functions/_twinlog",
    "fish": "fish/vendor_completions.d/twinlog.fish",
}
# zsh runs an autoloaded file once as the function `_twinlog`: it defines the function below, which must then answer that Tab.
ZSH_FIRST_TAB = '_twinlog_completion "$@"\n'


class BuildError(Exception):
    """A distribution could not be built; the message has what the builder said."""


def commit_time_s() -> int:
    """Returns the time of the last commit, in seconds since 1970. Raises CalledProcessError outside a git checkout."""
    shown = subprocess.run(["git", "log", "-1", "--format=%ct"], cwd=ROOT, capture_output=True, text=True, check=True)
    return int(shown.stdout)


def stage(folder: Path, epoch_s: int) -> tuple[Path, Path]:
    """Copies the sources of both distributions into `folder`: returns those of twinlog, and of twinlog-server."""
    app, server = folder / "app" / "twinlog", folder / "server"
    _copy(("twinlog",), app.parent)
    _copy(SERVER_FILES, server)
    date = datetime.fromtimestamp(epoch_s, UTC).date().isoformat()
    man_pages.write(app / "share" / "man" / "man1", date, {"", *VERBS})
    man_pages.write(server / "share" / "man" / "man1", date, set(all_verbs()) - set(VERBS))
    for shell, name in COMPLETIONS.items():
        target = app / "share" / name
        target.parent.mkdir(parents=True)
        target.write_text(completion(shell), encoding="utf-8")
    for path in sorted(folder.rglob("*")):
        path.chmod(0o755 if path.is_dir() else 0o644)
        os.utime(path, (epoch_s, epoch_s))
    return app, server


def _copy(tops: Iterable[str], folder: Path) -> None:
    for path in repository_files(ROOT):
        if path.parts[0] in tops:
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(ROOT / path, folder / path)


def completion(shell: str) -> str:
    """Returns the file that completes `twinlog` in this shell: bash, zsh or fish."""
    environ = {**os.environ, "_TWINLOG_COMPLETE": f"source_{shell}"}
    made = subprocess.run(
        [sys.executable, "-m", "twinlog"], env=environ, cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.strip() + "\n"
    return made + ZSH_FIRST_TAB if shell == "zsh" else made


def build(source: Path, out: Path, epoch_s: int) -> tuple[Path, Path]:
    """Builds offline with this environment's setuptools: returns the wheel and the source archive. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="twinlog-build-") as made:
        command = [sys.executable, "-m", "uv", "build", "--offline", "--no-build-isolation", "--quiet", "-o", made]
        environ = {**os.environ, "SOURCE_DATE_EPOCH": str(epoch_s), "PYTHONHASHSEED": "0"}
        done = subprocess.run(
            [*command, "--python", sys.executable, str(source)], env=environ, umask=0o022, capture_output=True, text=True,
            check=False,
        )
        if done.returncode:
            raise BuildError(f"{source.name} cannot be built: {done.stderr.strip()}")
        (wheel,), (archive,) = Path(made).glob("*.whl"), Path(made).glob("*.tar.gz")
        out.mkdir(parents=True, exist_ok=True)
        _level(archive, out / archive.name, epoch_s)
        return Path(shutil.copyfile(wheel, out / wheel.name)), out / archive.name


def _level(archive: Path, to: Path, epoch_s: int) -> None:
    """Writes the archive anew with one time, owner and mode for all, in the order of names."""
    packed = io.BytesIO()
    with tarfile.open(archive) as given, tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as made:
        for member in sorted(given.getmembers(), key=lambda member: member.name):
            member.mtime, member.uid, member.gid, member.uname, member.gname = epoch_s, 0, 0, "", ""
            member.mode, member.pax_headers = 0o755 if member.isdir() else 0o644, {}
            made.addfile(member, given.extractfile(member) if member.isfile() else None)
    with to.open("wb") as opened, gzip.GzipFile("", "wb", fileobj=opened, mtime=epoch_s) as zipped:
        zipped.write(packed.getvalue())


def build_all(out: Path, epoch_s: int) -> list[Path]:
    """Builds both distributions into `out`. Raises BuildError."""
    with tempfile.TemporaryDirectory(prefix="twinlog-stage-") as folder:
        return [path for source in stage(Path(folder), epoch_s) for path in build(source, out, epoch_s)]


def version() -> str:
    return str(tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["version"])


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.packaging.wheels", description="Builds both distributions.")
    parser.add_argument("--out", type=Path, default=OUT, help="where they are put (build/wheels)")
    try:
        for path in build_all(parser.parse_args().out, commit_time_s()):
            print(path)
    except BuildError as error:
        print(error, file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
