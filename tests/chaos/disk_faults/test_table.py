"""A table that is missing or broken is told and harmless; and a library is built once, or says what it needs."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.disk_faults import library
from chaos.disk_faults.control import RULES, VARIABLE, DiskFaults, failing, slow
from chaos.servers.hdfs_jars import CACHE_VARIABLE
from tests.chaos.disk_faults.child import child
from twinlog.errors import ConfigError, InvalidInput


@pytest.mark.parametrize(("content", "told"), [
    (None, "no table at"), (b"", "is no table of rules"), (bytes(100_000), "is no table of rules"),
])
def test_a_table_that_is_missing_or_broken_is_told_and_harmless(tmp_path: Path, content: bytes | None, told: str) -> None:
    with DiskFaults(tmp_path / "table") as faults:
        table = tmp_path / "broken"
        if content is not None:
            table.write_bytes(content)
        (tmp_path / "file").write_bytes(b"whole")
        with child("calls", {**faults.environ(), VARIABLE: str(table)}) as program:
            faults.begin(tmp_path, failing("EIO"))
            assert program.ask(f"unlink {tmp_path / 'file'}").endswith("ok")
            assert not faults.is_attached(program.pid)
            said = program.end()
    assert told in said
    assert "no fault will happen" in said


def test_a_table_of_the_right_size_and_another_kind_is_told(tmp_path: Path) -> None:
    with DiskFaults(tmp_path / "table") as faults:
        table = tmp_path / "broken"
        table.write_bytes(bytes((tmp_path / "table").stat().st_size))
        with child("calls", {**faults.environ(), VARIABLE: str(table)}) as program:
            assert "is no table of rules" in program.end()


def test_a_process_that_looks_at_the_table_is_known(tmp_path: Path) -> None:
    with DiskFaults(tmp_path / "table") as faults:
        with child("calls", faults.environ()) as program:
            assert program.ask(f"stat {tmp_path}").endswith("ok")
            assert faults.is_attached(program.pid)
        assert not faults.is_attached(program.pid)


def test_a_rule_ends_alone_and_its_place_is_used_again(tmp_path: Path) -> None:
    with DiskFaults(tmp_path / "table") as faults:
        numbers = [faults.begin(tmp_path / str(at), slow(1)) for at in range(RULES)]
        with pytest.raises(InvalidInput, match=f"{RULES} rules are in force"):
            faults.begin(tmp_path, slow(1))
        faults.end(numbers[3])
        assert faults.begin(tmp_path, slow(1)) == RULES + 1
        assert faults.hits(numbers[4]) == 0
    with pytest.raises(InvalidInput, match="none of EIO, EROFS, ENOSPC"):
        failing("EPERM")


def test_without_a_compiler_the_error_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CACHE_VARIABLE, str(tmp_path / "cache"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigError, match=r"there is no `gcc`: install one .*apt-get install gcc libc6-dev"):
        library.library()


def test_a_build_that_fails_leaves_nothing_and_one_that_ended_well_is_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache, compiler = tmp_path / "cache", tmp_path / "gcc"
    monkeypatch.setenv(CACHE_VARIABLE, str(cache))
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    compiler.write_text("#!/bin/sh\necho dlfcn.h: No such file >&2; exit 1\n")
    compiler.chmod(0o755)
    with pytest.raises(ConfigError, match=r"libc6-dev\): dlfcn.h: No such file"):
        library.library()
    assert not [*cache.iterdir()]
    compiler.unlink()
    built = library.library()
    compiler.write_text("#!/bin/sh\nexit 1\n")
    compiler.chmod(0o755)
    assert library.library() == built
    assert [*cache.iterdir()] == [built]
