"""A loss is accepted by the count that the command line shows, anew when it has changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from chaos.harness.pair.commands import READINGS_MAX, Commands, Typed


class Terminal(Commands):
    """Shows these manifests one after the other, and refuses the first failovers."""

    def __init__(self, shown: list[dict[str, Any] | None], refused: int) -> None:
        super().__init__(Path(), lambda: 5.0, lambda line: None)
        self._shown, self._refused = shown, refused

    async def _execute(self, words: list[str], why: str, killed_after_s: float | None = None) -> Typed:
        output, code = "", 0
        if words[0] == "validate":
            output = json.dumps({"loss": self._shown.pop(0)})
        elif self._refused:
            self._refused, code = self._refused - 1, 1
        return Typed(" ".join(words), why, 1.0, 2.0, code, output)


def typed(terminal: Terminal) -> list[str]:
    return [each.command for each in terminal.typed]


async def test_the_count_of_the_manifest_is_typed_and_kept() -> None:
    terminal = Terminal([{"records_at_risk": 17, "epoch": 1}], refused=0)
    done = await terminal.fail_over_with_loss("b")
    assert done.code == 0
    assert typed(terminal) == ["failover --to b --accept-data-loss --count 17 --yes"]
    assert [(each.site, each.typed, each.manifest["epoch"]) for each in terminal.accepted] == [("b", "17", 1)]


async def test_a_count_that_has_changed_is_read_anew() -> None:
    terminal = Terminal([{"records_at_risk": 17}, {"records_at_risk": None}], refused=1)
    await terminal.fail_over_with_loss("b")
    assert [each.split()[-2] for each in typed(terminal)] == ["17", "unknown"]
    assert [each.typed for each in terminal.accepted] == ["unknown"]


async def test_a_failover_that_is_refused_again_and_again_accepts_nothing() -> None:
    terminal = Terminal([{"records_at_risk": 17}] * READINGS_MAX, refused=READINGS_MAX)
    assert (await terminal.fail_over_with_loss("b")).code == 1
    assert terminal.accepted == []


async def test_where_nothing_is_lost_no_loss_is_accepted() -> None:
    terminal = Terminal([None], refused=0)
    await terminal.fail_over_with_loss("b")
    assert typed(terminal) == ["failover --to b --yes"]
    assert terminal.accepted == []
