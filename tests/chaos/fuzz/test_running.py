"""The runner finds what it is there for: wrong errors, readers that hang or take too much, values written otherwise."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest

from chaos.fuzz import cli, running
from chaos.fuzz.mutations import BYTES_MAX, mutated
from chaos.fuzz.running import corpus_of, drawn, run
from chaos.fuzz.target import Target, driven
from twinlog.decoding import decoded


def _made(chance: Random) -> bytes:
    return json.dumps({"a": chance.randrange(99), "b": ["text", None]}).encode()


def _read_json(data: bytes) -> Any:
    return decoded(json.loads, data, ValueError)


def _target(read: Any, **more: Any) -> Target:
    return Target("planted", _made, read, (ValueError,), structure="json", **more)


def test_an_error_that_is_not_documented_is_found_once_with_its_input() -> None:
    def read(data: bytes) -> Any:
        return decoded(json.loads, data, ValueError)["a"] + 1  # KeyError, TypeError

    report = run(_target(read), 2000, seed=1)
    kinds = sorted(finding.kind.split()[1] for finding in report.findings)
    assert kinds == ["KeyError", "TypeError"]
    for finding in report.findings:
        again = run(_target(read), 1, seed=1, first=finding.number)
        assert [one.data for one in again.findings] == [finding.data]


def test_a_reader_that_hangs_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    def read(data: bytes) -> Any:
        while b"{" not in data:
            pass

    monkeypatch.setattr(running, "STEP_S", 0.05)  # of processor time
    report = run(_target(read), 30, seed=1)
    assert len(report.findings) == 1
    assert "Hung" in report.findings[0].kind


def test_a_reader_that_takes_too_much_memory_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(running, "peak_kib", iter([0, 0, 300 << 10, *[300 << 10] * 20]).__next__)
    report = run(_target(_read_json), 4, seed=1)
    assert [(finding.kind, finding.number) for finding in report.findings] == [("memory", 1)]


def test_a_value_that_is_written_as_another_one_is_found() -> None:
    report = run(_target(_read_json, again=lambda value: json.dumps(value).replace("99", "98").encode()), 3000, seed=1)
    assert [finding.kind for finding in report.findings] == ["planted again"]


def test_an_input_is_that_of_its_number_alone() -> None:
    target = _target(_read_json)
    corpus = corpus_of(target, 5)
    assert [drawn(target, corpus, 5, number) for number in (3, 8)] == [
        drawn(target, corpus_of(target, 5), 5, number) for number in (3, 8)
    ]
    assert len({drawn(target, corpus, 5, number) for number in range(200)}) > 150


@pytest.mark.parametrize("structure", ["", "json", "msgpack"])
def test_mutations_are_bounded(structure: str) -> None:
    data = b'{"a":[1,2,"x"]}'
    assert all(len(mutated(Random(seed), data, data, structure)) <= BYTES_MAX for seed in range(3000))


def test_what_waits_is_no_reader() -> None:
    async def waits() -> None:
        import asyncio

        await asyncio.sleep(0)

    with pytest.raises(AssertionError, match="waits for something"):
        driven(waits())


def test_the_command_says_what_it_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    def read(data: bytes) -> Any:
        raise KeyError("planted")

    monkeypatch.setattr(cli, "targets_of", lambda group: [_target(read), _target(_read_json)])
    assert cli.main(["rows", "--inputs", "40", "--seed", "1"]) == 1
    said = capsys.readouterr().out
    assert "40 inputs" in said
    assert "KeyError" in said
    assert cli.main(["rows", "--inputs", "40", "--seed", "1", "--only", "nothing of this name"]) == 2
