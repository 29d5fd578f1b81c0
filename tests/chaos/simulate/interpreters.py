"""Other Pythons of this machine, each with what the simulator needs, in `.interpreters`. `make interpreters` prepares them.

What always holds: each is of a newer minor version than the one that runs the tests, and was found on the path or among those
of pyenv; the versions of the libraries are those of requirements/main.txt.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

from tools.sources import ROOT

MINORS = (12, 13)
NEEDS = (
    "crc32c", "cryptography", "fastapi", "httptools", "httpx", "jinja2", "msgspec", "prometheus_client", "psycopg[binary]",
    "pyarrow", "pyjwt", "rich", "rocksdict", "sqlalchemy", "structlog", "tenacity", "typer", "uvicorn",
)
_HOME = ROOT / ".interpreters"


def found() -> dict[int, Path]:
    """Returns minor version -> interpreter."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    there = {}
    for minor in MINORS:
        on_path = shutil.which(f"python3.{minor}")
        for path in ([Path(on_path)] if on_path else []) + sorted(pyenv.glob(f"3.{minor}.*/bin/python")):
            if minor > sys.version_info.minor and _answers(path, minor):  # a shim on the path may lead nowhere
                there[minor] = path
    return there


def prepared(minor: int) -> Path:
    """Returns the interpreter of its environment, which `prepare` makes."""
    return _HOME / f"3.{minor}" / "bin" / "python"


def prepare() -> None:
    """Raises CalledProcessError when a library cannot be fetched."""
    uv = Path(sys.executable).with_name("uv")
    for minor, interpreter in found().items():
        folder, has = _HOME / f"3.{minor}", _HOME / f"3.{minor}" / "needs"
        if not has.exists() or has.read_text() != "\n".join(NEEDS):
            shutil.rmtree(folder, ignore_errors=True)  # it is of an older list
            making = folder.with_name(f"{folder.name}.{os.getpid()}")
            subprocess.run([uv, "venv", "-q", "--relocatable", "--python", interpreter, making], check=True)
            install = [uv, "pip", "install", "-q", "--python", making / "bin" / "python", "-c", "requirements/main.txt", *NEEDS]
            subprocess.run(install, check=True, cwd=ROOT)
            (making / "needs").write_text("\n".join(NEEDS))
            making.rename(folder)
        sys.stdout.write(f"Python 3.{minor}: {prepared(minor).relative_to(ROOT)}\n")


def _answers(path: Path, minor: int) -> bool:
    asked = subprocess.run([path, "-c", "import sys; print(sys.version_info[1])"], capture_output=True, text=True, check=False)
    return asked.returncode == 0 and asked.stdout.strip() == str(minor)


if __name__ == "__main__":
    prepare()
