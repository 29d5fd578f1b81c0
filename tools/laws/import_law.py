"""The dependency law, given to import-linter: gateway -> switchover -> remote_log -> storage -> twinlog, and what is pure.

What always holds: an upper layer may import a lower one, never the reverse; nothing imports chaos, tests, bench or tools;
Spark jobs see only the pure modules of storage and remote_log, and READING; a pure module reaches no clock, file, thread,
socket or event loop, not through another module either. A module is pure when its docstring has the line PURE; one that
calls itself pure in other words fails, for nobody would check it. urllib is let through: import-linter sees only its top, and
urllib.parse is harmless. The configuration is generated because it follows the modules that exist.
"""

from __future__ import annotations

import ast
import configparser
import contextlib
import io
import re
import sys
import tempfile
from pathlib import Path

from importlinter import cli

from tools.sources import ROOT, repository_files

LAYERS = ("gateway", "switchover", "remote_log", "storage", "twinlog")
PACKAGES = (*LAYERS, "spark_jobs", "chaos")
OUTSIDE = ("chaos", "tests", "bench", "tools")
PURE = "This module is pure."
_OTHER_WORDS = re.compile(r"\bPure\b|, pure\b")
# How an engine's rows are read, by the database's own client on a connection that is given, without clock, thread or file:
# audits of a snapshot use these too, so that there is one way to read a row.
READING = (
    "storage.engines.rocks.view", "storage.engines.rocks.purging", "storage.engines.rocks.state",
    "storage.engines.sql.tables", "storage.engines.sql.reading",
)
# A replay makes a storage that the engine opens later: made by the engine's own opening, or it would be another format.
MAKES_STORAGE = ("spark_jobs.replay.job", "storage.engines.rocks.opening")
IMPURE_LIBRARIES = (
    "asyncio", "concurrent", "http", "io", "multiprocessing", "os", "pathlib", "queue", "random", "secrets", "select",
    "selectors", "shutil", "signal", "socket", "ssl", "subprocess", "tempfile", "threading", "time",
    "anyio", "fastapi", "hdfs", "httptools", "httpx", "requests", "rocksdict", "sqlalchemy", "starlette", "uvicorn", "uvloop",
)


def existing_modules(root: Path, package: str) -> list[str]:
    """Dotted names of the modules and subpackages of `package`, itself left out."""
    names = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__")
        for path in repository_files(root, ".py") if path.parts[0] == package
    }
    return sorted(names - {package})


def pure_modules(root: Path) -> tuple[list[str], list[str]]:
    """The modules that say so, and those that call themselves pure in other words. Dotted names."""
    pure, unclear = [], []
    for path in repository_files(root, ".py"):
        if path.parts[0] in PACKAGES:
            name = ".".join(path.with_suffix("").parts).removesuffix(".__init__")
            said = ast.get_docstring(ast.parse((root / path).read_text(encoding="utf-8"))) or ""
            if PURE in said.splitlines():
                pure.append(name)
            elif PURE in said or _OTHER_WORDS.search(said):
                unclear.append(name)
    return sorted(pure), sorted(unclear)


def configuration(root: Path, pure: list[str]) -> configparser.ConfigParser:
    """import-linter's settings for the modules that exist."""
    modules = [name for package in PACKAGES for name in existing_modules(root, package)]
    rooms = [name for name in modules if not any(other.startswith(f"{name}.") for other in modules)]  # a package stands for all
    not_seen = [name for name in rooms if name.split(".")[0] in ("storage", "remote_log") and name not in (*pure, *READING)]
    parser = configparser.ConfigParser()
    parser["importlinter"] = {"root_packages": _lines(PACKAGES), "include_external_packages": "True"}
    parser["importlinter:contract:layers"] = {
        "name": "gateway -> switchover -> remote_log -> storage -> twinlog", "type": "layers", "layers": _lines(LAYERS),
    }
    _forbid(parser, "outside", "nothing imports chaos, tests, bench or tools", (*LAYERS, "spark_jobs"), OUTSIDE)
    _forbid(parser, "public", "the package that apps import needs nothing of ours", ("twinlog",), ("spark_jobs",))
    _forbid(parser, "spark", "Spark jobs use only the pure modules of storage and remote_log, and those that read rows",
            ("spark_jobs",), ("gateway", "switchover", *not_seen))
    if set(modules).issuperset(MAKES_STORAGE):
        parser["importlinter:contract:spark"]["ignore_imports"] = " -> ".join(MAKES_STORAGE)
    if pure:
        _forbid(parser, "pure", "pure modules reach no clock, file, thread, socket or loop", pure, IMPURE_LIBRARIES)
    return parser


def _forbid(
    parser: configparser.ConfigParser, key: str, name: str, sources: tuple[str, ...] | list[str], forbidden: tuple[str, ...]
) -> None:
    parser[f"importlinter:contract:{key}"] = {
        "name": name, "type": "forbidden", "source_modules": _lines(sources), "forbidden_modules": _lines(forbidden),
    }


def _lines(values: tuple[str, ...] | list[str]) -> str:
    return "\n" + "\n".join(values)


def main(root: Path = ROOT) -> int:
    pure, unclear = pure_modules(root)
    for name in unclear:
        print(f"{name} calls itself pure in other words: give its docstring the line {PURE!r}, or do not call it pure")
    if unclear:
        return 1
    parser = configuration(root, pure)
    sys.path.insert(0, str(root))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "importlinter.ini"
        with path.open("w", encoding="utf-8") as file:
            parser.write(file)
        said = io.StringIO()
        with contextlib.redirect_stdout(said):
            code = cli.lint_imports(config_filename=str(path), no_cache=True)
    if code != cli.EXIT_STATUS_SUCCESS:
        print(said.getvalue())
    return code


if __name__ == "__main__":
    sys.exit(main())
