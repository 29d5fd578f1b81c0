"""The operator's command line as a process: how it ended is told, also when it was killed."""

from __future__ import annotations

from pathlib import Path

from chaos.harness.pair.commands import BY_PLAN, Commands


def commands(folder: Path) -> Commands:
    config = folder / "operator.toml"
    config.write_text('pair = "demo"\n[sites.a]\nurl = "http://127.0.0.1:1"\n[sites.b]\nurl = "http://127.0.0.1:1"\n')
    return Commands(config, lambda: 0.0, lambda line: None)


async def test_a_command_that_is_killed_says_so_and_is_kept(tmp_path: Path) -> None:
    operator = commands(tmp_path)
    typed = await operator.run("switchover", "--to", "b", killed_after_s=0.01)
    assert typed.told.startswith("was killed")
    assert typed.why == BY_PLAN
    assert operator.typed == [typed]


async def test_a_command_that_ends_before_is_told_by_its_exit_code(tmp_path: Path) -> None:
    typed = await commands(tmp_path).run("switchover", "--to", "b", killed_after_s=60.0)
    assert typed.code == 4
    assert typed.told.startswith("ended with 4")
