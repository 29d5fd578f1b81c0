"""One place decodes what comes from outside or from a disk: no other calls a decoder on it, and none handles msgspec's errors.

A handler of msgspec's errors lets UnicodeDecodeError and RecursionError through: a claim with a flipped byte was no DamagedLog.
The sources are parsed in a process of their own: CPython 3.11 counts in one place how deep all that makes syntax trees is in a
process, and what other tests leave behind (a finalizer that runs meanwhile, a recursion that was cut off) makes it fail.
"""

from __future__ import annotations

import ast
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

import pytest

from tools.sources import ROOT, repository_files

PRODUCT = ("twinlog", "gateway", "switchover", "remote_log", "storage", "spark_jobs")
HERE = "twinlog/decoding.py"
WITHOUT_MSGSPEC = "twinlog/wire/json_objects.py"  # for commands that do not wait for its import
DECODES = {
    "msgspec.json.decode", "msgspec.msgpack.decode", "msgspec.json.Decoder", "msgspec.msgpack.Decoder", "msgspec.convert",
    "json.loads", "tomllib.loads", "tomllib.load",
}
ERRORS = {"MsgspecError", "DecodeError", "ValidationError", "JSONDecodeError"}
OUR_OWN = {"gateway/api/openapi.py"}  # examples that it encoded in the line before


def breaches(path: str, source: str, decoders: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in DECODES and not called.endswith("Decoder"):
                yield f"{path}:{node.lineno} calls {called}"
            elif {called, called.rpartition(".decode")[0]} & decoders or (").decode" in called and "Decoder(" in called):
                yield f"{path}:{node.lineno} calls the decoder {called}"
        elif isinstance(node, ast.ExceptHandler) and node.type is not None:
            caught = {name.attr for name in ast.walk(node.type) if isinstance(name, ast.Attribute)} & ERRORS
            if caught:
                yield f"{path}:{node.lineno} handles {', '.join(sorted(caught))}"


def decoders_of(source: str) -> set[str]:
    """The names of the module that stand for a decoder, or for its `decode`."""
    found = set()
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and "Decoder(" in ast.unparse(node.value):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            found |= {ast.unparse(target) for target in targets}
    return found


def breaches_below(root: Path, paths: list[Path]) -> list[str]:
    sources = {str(path): (root / path).read_text(encoding="utf-8") for path in paths}
    found = []
    for path, source in sources.items():
        if path != HERE and path not in {*OUR_OWN, WITHOUT_MSGSPEC}:
            imported: set[str] = set()
            for node in ast.walk(ast.parse(source)):
                if isinstance(node, ast.ImportFrom) and node.module:
                    there = decoders_of(sources.get(f"{node.module.replace('.', '/')}.py", ""))
                    imported |= {alias.name for alias in node.names} & there
            found += breaches(path, source, decoders_of(source) | imported)
    return found


@pytest.fixture(scope="module")
def breaches_in() -> Iterator[Callable[[Path, list[Path]], list[str]]]:
    """breaches_below, in a fresh process."""
    with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as fresh:
        yield lambda root, paths: fresh.submit(breaches_below, root, paths).result()


def test_the_house_keeps_the_law(breaches_in: Callable[[Path, list[Path]], list[str]]) -> None:
    paths = [path for path in repository_files(ROOT, ".py") if path.parts[0] in PRODUCT]
    assert breaches_in(ROOT, paths) == []


@pytest.mark.parametrize("source", [
    "import msgspec\nx = msgspec.json.decode(b'')", "import msgspec\nx = msgspec.convert({}, int)",
    "import json\njson.loads('')", "import tomllib\ntomllib.loads('')",
    "import msgspec\n_decode = msgspec.msgpack.Decoder(int).decode\n_decode(b'')",
    "import msgspec\n_d = msgspec.msgpack.Decoder(int)\n_d.decode(b'')",
    "import msgspec\nmsgspec.json.Decoder(int).decode(b'')", "from twinlog.decoding import OBJECT\nOBJECT(b'')",
    "import msgspec\ntry:\n    pass\nexcept (OSError, msgspec.MsgspecError):\n    pass",
    "import msgspec\ntry:\n    pass\nexcept msgspec.ValidationError:\n    pass",
])
def test_each_breach_is_found(
    tmp_path: Path, source: str, breaches_in: Callable[[Path, list[Path]], list[str]]
) -> None:
    (tmp_path / "twinlog").mkdir()
    (tmp_path / "twinlog/decoding.py").write_text((ROOT / HERE).read_text(encoding="utf-8"))
    (tmp_path / "room.py").write_text(source)
    assert len(breaches_in(tmp_path, [Path("room.py"), Path(HERE)])) == 1
