"""The command `attach` refuses before it touches a pair, and makes a plan of its options."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.fault_lines import Fault
from chaos.harness.attach import cli
from chaos.harness.attach.run import Attachment
from chaos.harness.plan import HarnessPlan, parse
from chaos.servers.ports import free_ports
from twinlog.errors import InvalidInput, TwinlogError

NOBODY = "http://127.0.0.1:1,http://127.0.0.1:2"


def ended(plan: str, folder: Path, *options: str) -> int:
    path = folder / "plan.txt"
    path.write_text(plan)
    return cli.main(["--config", NOBODY, "--plan", str(path), "--out", str(folder / "out"), *options])


@pytest.mark.parametrize(("plan", "told"), [
    ("at 1 crash a", "'at 1.0 crash a': attach breaks links and types commands; it never touches a process"),
    ("at 1 disk-full a for 2 how wal", "it never touches a process or a file"),
    ("at 1 black-hole a>b for 2", "'at 1.0 black-hole a>b for 2.0' needs a Toxiproxy in the path of that link"),
    ("at 1 failover c", "line 1 of the plan"),
])
def test_a_line_that_cannot_be_done_to_somebody_elses_pair_is_refused(
    plan: str, told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(plan, tmp_path) == 2
    assert told in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_a_pair_that_does_not_answer_ends_with_3_and_the_name_of_each_site(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    a, b = free_ports(2)
    assert cli.main(["--config", f"http://127.0.0.1:{a},http://127.0.0.1:{b}", "--out", str(tmp_path / "out")]) == 3
    said = capsys.readouterr().err
    assert f"site a does not answer: site a (http://127.0.0.1:{a})" in said
    assert "site b does not answer" in said
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize(("options", "told"), [
    (["--plan", "x", "--switchovers", "1"], "leave out"), (["--plan", "x", "--minutes", "2"], "leave out"),
    (["--minutes", "0"], "more than 0"), (["--workload", "dance"], "invalid choice"),
])
def test_wrong_options_end_with_2(options: list[str], told: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        cli.main(["--config", NOBODY, *options])
    assert refused.value.code == 2
    assert told in capsys.readouterr().err


def test_a_toxiproxy_without_a_port_and_a_file_of_one_site_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["--config", NOBODY, "--toxiproxy", "localhost"]) == 2
    assert "write HOST:PORT" in capsys.readouterr().err
    (tmp_path / "site.toml").write_text('site = "a"\n')
    assert cli.main(["--config", str(tmp_path / "site.toml")]) == 2
    assert "here the pair is wanted" in capsys.readouterr().err


def test_switchovers_are_spread_over_the_time() -> None:
    plan = cli.plan_of(cli.arguments(["--config", NOBODY, "--minutes", "1.5", "--switchovers", "2", "--workload", "bank"]))
    assert plan.faults == (Fault(30.0, "switchover", "standby"), Fault(60.0, "switchover", "standby"))
    assert (plan.seconds, plan.workload) == (90.0, "bank")
    assert not cli.plan_of(cli.arguments(["--config", NOBODY])).faults, "no role change that nobody asked for"


def test_nothing_is_changed_when_nobody_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    attachment = Attachment(parse("at 1 switchover b"), NOBODY, None)
    with pytest.raises(InvalidInput, match="say --yes"):
        cli._agreed(attachment)
    monkeypatch.setattr("sys.stdin", type("Terminal", (), {"isatty": lambda self: True})())
    for answer, agreed in (("yes", True), ("y", False), ("", False)):
        monkeypatch.setattr("builtins.input", lambda _, answer=answer: answer)
        assert cli._agreed(attachment) is agreed
    assert cli._agreed(Attachment(HarnessPlan(), NOBODY, None)), "traffic alone needs no question"


def test_a_pair_in_the_middle_of_something_is_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    attachment = Attachment(HarnessPlan(), NOBODY, None)
    whole = {"site": "a", "role": "ACTIVE", "epoch": 3, "mode": "sync", "active": {"site": "a", "epoch": 3}, "operation": None}
    answers = {"a": whole, "b": {**whole, "site": "b", "role": "STANDBY", "operation": "op-1"}}
    monkeypatch.setattr(attachment.sites.direct, "ask_all", lambda path: answers)
    with pytest.raises(TwinlogError, match="site b is in the middle of op-1"):
        attachment.look()
    answers["b"]["operation"] = None
    assert attachment.look() == "a is ACTIVE, epoch 3, sync; b is STANDBY, epoch 3, sync"
    attachment.close()
    answers["b"]["site"] = "a"
    with pytest.raises(TwinlogError, match="is the address of site a, not of site b"):
        attachment.look()
