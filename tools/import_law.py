"""The dependency law, given to import-linter: gateway -> switchover -> remote_log -> storage -> twinlog, and what is pure.

What always holds: an upper layer may import a lower one, never the reverse; nothing imports chaos, tests, bench or tools;
Spark jobs see only the pure modules of storage and remote_log, and READING; a pure module reaches no clock, file, thread,
socket or event loop, not through another module either. A pure module that is listed here and not written yet is named, not
failed, so the list can lead. urllib is let through: import-linter sees only its top, and urllib.parse is pure.
The configuration is generated because it follows the modules that exist.
"""

from __future__ import annotations

import configparser
import contextlib
import io
import sys
import tempfile
from pathlib import Path

from importlinter import cli

from tools.sources import ROOT, repository_files

LAYERS = ("gateway", "switchover", "remote_log", "storage", "twinlog")
PACKAGES = (*LAYERS, "spark_jobs", "chaos")
OUTSIDE = ("chaos", "tests", "bench", "tools")
PURE = (
    "twinlog.errors", "storage.rows.types", "storage.rows.keys", "storage.rows.schema", "storage.log.record",
    "storage.log.frame", "storage.log.segment", "storage.log.chain", "storage.rows.codec",
    "storage.rows.compiled", "storage.rows.arrow_columns", "storage.rows.arrow", "storage.rows.predicates",
    "storage.engines.meaning", "storage.engines.entries.changes", "storage.engines.entries.layout",
    "storage.engines.applied", "storage.engines.sql.column_types", "storage.engine",
    "storage.disk.sealed_json", "storage.invariants", "remote_log.layout", "remote_log.fencing.read_lease",
    "remote_log.replication.epoch_history", "remote_log.replication.messages", "gateway.epoch.commit_rule",
    "gateway.service.admission", "twinlog.flow", "twinlog.calls", "gateway.service.receipts",
    "twinlog.problem_documents", "switchover.roles.table", "switchover.activation.continuation",
    "switchover.register.transitions", "switchover.roles.boot", "switchover.register.homes",
    "switchover.operations.document", "switchover.preflight.checks", "switchover.facts", "switchover.preflight.loss",
    "switchover.monitor.views", "switchover.monitor.findings", "switchover.monitor.judgement",
)
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


def configuration(root: Path) -> tuple[configparser.ConfigParser, list[str]]:
    """import-linter's settings for the modules that exist, and the pure ones that do not exist yet."""
    modules = [name for package in PACKAGES for name in existing_modules(root, package)]
    pure = [name for name in PURE if name in modules]
    rooms = [name for name in modules if not any(other.startswith(f"{name}.") for other in modules)]  # a package stands for all
    not_seen = [name for name in rooms if name.split(".")[0] in ("storage", "remote_log") and name not in PURE + READING]
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
    return parser, [name for name in PURE if name not in modules]


def _forbid(
    parser: configparser.ConfigParser, key: str, name: str, sources: tuple[str, ...] | list[str], forbidden: tuple[str, ...]
) -> None:
    parser[f"importlinter:contract:{key}"] = {
        "name": name, "type": "forbidden", "source_modules": _lines(sources), "forbidden_modules": _lines(forbidden),
    }


def _lines(values: tuple[str, ...] | list[str]) -> str:
    return "\n" + "\n".join(values)


def main(root: Path = ROOT) -> int:
    parser, absent = configuration(root)
    if absent:
        print(f"  pure by design, not written yet: {', '.join(absent)}")
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
