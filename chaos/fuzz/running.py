"""Runs a target: input after input, each drawn from the seed and its number, and keeps what should not have happened.

What always holds: input N of a seed is the same whichever inputs ran before; a reader that does not end within STEP_S of this
process's own processor time is stopped and reported, and so is one input that takes more than MEMORY_BYTES of memory; faults
of one kind (target, class of the error, place where it came from) are kept once, with the first input that showed them.
"""

from __future__ import annotations

import resource
import signal
import traceback
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from random import Random
from types import FrameType
from typing import NoReturn

import structlog

from chaos.fuzz.mutations import mutated
from chaos.fuzz.target import Target

CORPUS = 48  # valid inputs of a target
VALID = 0.02  # share of the inputs that stay valid
REPAIRED = 0.75
STEP_S = 10.0
MEMORY_BYTES = 256 << 20
FINDINGS_MAX = 40


class Hung(BaseException):
    """The reader did not end. No handler of errors takes it."""


@dataclass(frozen=True, slots=True)
class Finding:
    """`kind` names faults that are one and the same."""

    target: str
    number: int
    data: bytes
    kind: str
    what: str

    def text(self) -> str:
        return f"{self.target}, input {self.number}: {self.what}\n  kind: {self.kind}\n  input: {self.data[:300]!r}"


@dataclass(slots=True)
class Report:
    target: str
    inputs: int = 0
    read: int = 0
    refused: int = 0
    findings: list[Finding] = field(default_factory=list)

    def note(self, finding: Finding) -> None:
        if len(self.findings) < FINDINGS_MAX and all(known.kind != finding.kind for known in self.findings):
            self.findings.append(finding)


def run(target: Target, inputs: int, seed: int, *, first: int = 0, seen: Callable[[int], None] = lambda count: None) -> Report:
    """Gives `inputs` inputs to the target, beginning with number `first`. `seen` hears how many are done, now and then."""
    report = Report(target.name)
    corpus = corpus_of(target, seed)
    before_kib = peak_kib()
    with _bounded(), closing_down(target):
        for number in range(first, first + inputs):
            data = drawn(target, corpus, seed, number)
            signal.setitimer(signal.ITIMER_VIRTUAL, STEP_S)
            finding = _judged(target, number, data, report)
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            now_kib = peak_kib()
            if (now_kib - before_kib) << 10 > MEMORY_BYTES:
                finding = Finding(target.name, number, data, "memory", f"it took {(now_kib - before_kib) >> 10} MiB of memory")
            before_kib = now_kib
            if finding is not None:
                report.note(finding)
            if not number & 0xFFF:
                seen(report.inputs)
    return report


@contextmanager
def closing_down(target: Target) -> Iterator[None]:
    """Ends the target inside of the bounds: what it keeps began in them."""
    try:
        yield
    finally:
        target.end()


def peak_kib() -> int:
    """The most memory that this process ever had, which only grows."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss


def corpus_of(target: Target, seed: int) -> list[bytes]:
    chance = Random(f"{seed} {target.name}")
    return [target.made(chance) for _ in range(CORPUS)]


def drawn(target: Target, corpus: Sequence[bytes], seed: int, number: int) -> bytes:
    """Input `number` of the seed."""
    chance = Random(f"{seed} {target.name} {number}")
    data = chance.choice(corpus)
    if chance.random() < VALID:
        return data
    data = mutated(chance, data, chance.choice(corpus), target.structure)
    return target.repair(data) if chance.random() < REPAIRED else data


def _judged(target: Target, number: int, data: bytes, report: Report) -> Finding | None:
    """Counts the input, and returns what is wrong with how it was read."""
    report.inputs += 1
    try:
        value = target.read(data)
    except target.refusals:
        report.refused += 1
        return None
    except (Exception, Hung) as error:
        return _finding(target, number, data, error, "not a documented refusal")
    report.read += 1
    if target.again is None:
        return None
    try:
        again = target.read(target.again(value))
    except (Exception, Hung) as error:
        return _finding(target, number, data, error, "what was read cannot be written and read again")
    if again != value and repr(again) != repr(value):  # a NaN is not equal to itself
        what = f"read again it is another value: {value!r:.300} became {again!r:.300}"
        return Finding(target.name, number, data, f"{target.name} again", what)
    return None


def _finding(target: Target, number: int, data: bytes, error: BaseException, what: str) -> Finding:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "site-packages" not in frame.filename] or frames
    place = f"{ours[-1].filename.rpartition('/')[2]}:{ours[-1].name}" if ours else "?"
    kind = f"{target.name} {type(error).__name__} {place}"
    return Finding(target.name, number, data, kind, f"{what}: {type(error).__name__}: {str(error)[:300]} (at {place})")


def _dropped(*line: object) -> NoReturn:
    raise structlog.DropEvent


@contextmanager
def _bounded() -> Iterator[None]:
    """Sets the bound of a step. What the product logs, or warns of, of inputs that are nonsense is not shown."""

    def hung(number: int, frame: FrameType | None) -> None:
        raise Hung(f"it did not end within {STEP_S:g} s of processor time")

    before, logging_before = signal.signal(signal.SIGVTALRM, hung), structlog.get_config()
    structlog.configure(processors=[_dropped])
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        structlog.configure(**logging_before)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        signal.signal(signal.SIGVTALRM, before)
