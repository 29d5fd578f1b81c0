"""Scenarios as text: how the lines of tests/scenarios/pair_*.txt are read, and what runs them.

A line is a command, and often what it must answer:

    put a k1 v1                 -> sync           the answer is exactly this
    until get b k1 stale        -> v1             asked again until it is, at most UNTIL_S long
    remote-segments a           -> at least 3     or `at most`
    each POINT: claim fence                       the scenario runs once for each word, put in place of $POINT

`#` begins a comment. What always holds: a command that nobody knows, an answer that differs or never comes, and a scenario that
checks nothing are errors that name file and line.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path

from twinlog.errors import TwinlogError

UNTIL_S = 120.0  # generous: a machine under load is no finding
POLL_S = 0.01
COMMAND_MAX_S = 300.0
Command = Callable[[list[str]], Awaitable[str]]


class ScenarioError(AssertionError):
    """The error of a scenario, with file and line."""


@dataclass(frozen=True)
class Line:
    place: str  # file:line
    text: str
    words: list[str]
    expected: str | None
    until: bool


@dataclass(frozen=True)
class Scenario:
    name: str
    lines: list[Line]

    def __str__(self) -> str:
        return self.name


def load(path: Path) -> list[Scenario]:
    """The scenario in `path`, once for each word of its `each` line. Raises ScenarioError."""
    each: tuple[str, list[str]] | None = None
    numbered = []
    for number, raw in enumerate(path.read_text().splitlines(), start=1):
        text = raw.partition("#")[0].strip()
        if text.startswith("each "):
            name, _, after = text.removeprefix("each ").partition(":")
            each = (f"${name.strip()}", after.split())
        elif text:
            numbered.append((f"{path.name}:{number}", text))
    if not any("->" in text for _, text in numbered):
        raise ScenarioError(f"{path.name} checks nothing: no line has an answer (`->`)")
    if each is None:
        return [Scenario(path.stem, [_line(place, text) for place, text in numbered])]
    variable, values = each
    return [
        Scenario(f"{path.stem}[{value}]", [_line(place, text.replace(variable, value)) for place, text in numbered])
        for value in values
    ]


def _line(place: str, text: str) -> Line:
    command, arrow, expected = (part.strip() for part in text.partition("->"))
    words = command.split()
    until = bool(words) and words[0] == "until"
    words = words[1:] if until else words
    if not words or (arrow and not expected) or (until and not arrow):
        raise ScenarioError(f"{place}: `{text}` is not of the form `[until] command words [-> answer]`")
    return Line(place, text, words, " ".join(expected.split()) if arrow else None, until)


async def run(scenario: Scenario, commands: dict[str, Command], state: Callable[[], str]) -> None:
    """Every line in order. `state` describes the pair when a line fails."""
    for line in scenario.lines:
        command = commands.get(line.words[0])
        if command is None:
            raise ScenarioError(f"{line.place}: there is no command {line.words[0]!r}; there are {', '.join(sorted(commands))}")
        answer = await _answered(line, command)
        if line.expected is not None and not meets(answer, line.expected):
            waited = f" within {UNTIL_S:.0f} s" if line.until else ""
            raise ScenarioError(
                f"{line.place}: `{line.text}`\n  expected{waited}: {line.expected}\n  got: {answer}\n  {state()}"
            )


async def _answered(line: Line, command: Command) -> str:
    """The command's answer; of an `until` line the first one that is right, or the last one."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + UNTIL_S
    try:
        async with asyncio.timeout(COMMAND_MAX_S):
            while True:
                answer = await outcome(command(line.words[1:]))
                if not line.until or meets(answer, line.expected or "") or loop.time() >= until_s:
                    return answer
                await asyncio.sleep(POLL_S)  # a poll of observable state, bounded above
    except TimeoutError:
        return f"nothing within {COMMAND_MAX_S:.0f} s"
    except (ValueError, IndexError, KeyError, TypeError) as error:
        raise ScenarioError(f"{line.place}: `{line.text}` cannot be run: {type(error).__name__}: {error}") from error


def meets(answer: str, expected: str) -> bool:
    for bound, holds in (("at least ", int.__ge__), ("at most ", int.__le__)):
        if expected.startswith(bound):
            return holds(int(answer), int(expected.removeprefix(bound)))
    return answer == expected


async def outcome(work: Awaitable[str]) -> str:
    """The answer, or the error as a word: what a client is told, `unknown` and `not-active` with the address."""
    try:
        return await work
    except TwinlogError as error:
        if error.code == "outcome-unknown":
            return "unknown"
        active = error.fields.get("active")
        if error.code == "not-active" and isinstance(active, dict):
            return f"not-active {active['url']}"
        return error.code
