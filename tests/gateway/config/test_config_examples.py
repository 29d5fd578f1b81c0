"""The whole configurations that the docs show: one for each combination of DFS and storage, and each of them is right."""

from __future__ import annotations

from itertools import product
from pathlib import Path

import pytest

from gateway.config.loading import load_site_config
from gateway.tls.issuing import Issuer
from tools.sources import ROOT

EXAMPLES = sorted((ROOT / "docs").glob("site-*.toml"))
ENVIRON = {
    "TWINLOG_A_PASSWORD": "s3cret", "TWINLOG_A_JOURNAL": "postgresql+psycopg://j:pw@h/j",
    "TWINLOG_COORDINATOR": "postgresql+psycopg://c:pw@h/c",
}


def loaded(example: Path, folder: Path) -> tuple[str, str]:
    """(kind of both DFSs, kind of the engine), with what this machine lacks made in `folder`."""
    text = example.read_text(encoding="utf-8")
    for name in ("hadoop/a", "hadoop/b"):
        (folder / name).mkdir(parents=True)
        text = text.replace(f"/etc/{name}", str(folder / name))
    (folder / "a.keytab").write_bytes(b"\5\2")
    (folder / "coordinator.url").write_text("postgresql+psycopg://c@h/c\n", encoding="utf-8")
    if "/etc/twinlog/site-a.pem" in text:
        issuer = Issuer(folder)
        issuer.make_ca("orders", 30)
        issuer.make_site("orders", "a", ["gateway-a.example.org"], 30)
    file = folder / "site.toml"
    file.write_text(text.replace("/etc/twinlog/", f"{folder}/"), encoding="utf-8")
    config = load_site_config(file, ENVIRON)
    assert config.dfs.own.kind == config.dfs.peer.kind
    return config.dfs.own.kind, config.engine.kind


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_an_example_is_right_and_the_handbook_leads_to_it(example: Path, tmp_path: Path) -> None:
    loaded(example, tmp_path)
    assert f"({example.name})" in (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")


def test_there_is_one_for_each_combination(tmp_path: Path) -> None:
    found = [loaded(example, tmp_path / example.stem) for example in EXAMPLES]
    assert sorted(found) == sorted(product(("directory", "hdfs"), ("rocksdb", "postgresql", "sqlite")))
