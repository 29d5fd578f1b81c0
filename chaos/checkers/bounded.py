"""P7, I6: the remote log holds what the other site has not durably applied, and the open segment, no more.

What always holds: a needless segment goes within `trim_slack_s` in which it can be deleted; when drained none is left.
How large a segment is nobody promises: it grows while the next one cannot be made.
While an epoch is asynchronous its remote log is not written and not trimmed, so it is judged in synchronous mode only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from chaos.checkers.violation import Violation
from chaos.history.history import History, RemoteLogLine

NAME = "bounded"


def check(history: History) -> list[Violation]:
    """Reports the first look of each epoch that finds too much."""
    by_epoch: dict[int, list[RemoteLogLine]] = {}
    for sample in sorted(history.remote_logs, key=lambda each: each.at_s):
        by_epoch.setdefault(sample.epoch, []).append(sample)
    found: list[Violation] = []
    for epoch, samples in by_epoch.items():
        modes = sorted((each.at_s, each.mode) for each in history.modes if each.epoch == epoch)
        found += _needless(samples, modes, history.limits.trim_slack_s)
    return found + _drained(history)


def _needless(samples: Sequence[RemoteLogLine], modes: Sequence[tuple[float, str]], slack_s: float) -> list[Violation]:
    since: dict[str, float] = {}
    for sample in samples:
        since = {name: since.get(name, sample.at_s) for name in sample.needless}
        for name, from_s in since.items():
            if sample.at_s - from_s > slack_s and not _async_within(modes, sample.at_s - slack_s, sample.at_s):
                sentence = (
                    f"The remote log of site {sample.site}, epoch {sample.epoch}, still holds {name}, that nobody has needed"
                    f" for {sample.at_s - from_s:.1f} s; {slack_s} s are enough to delete it."
                )
                return [Violation("P7", NAME, sentence, (), (sample.at_s,))]
    return []


def _async_within(modes: Sequence[tuple[float, str]], from_s: float, to_s: float) -> bool:
    first = max(0, bisect_right(modes, (from_s, "~")) - 1)
    return any(mode == "async" for at_s, mode in modes[first:] if at_s <= to_s)


def _drained(history: History) -> list[Violation]:
    drained_s = history.moment("drained")
    after = [each for each in history.remote_logs if drained_s is not None and each.at_s >= drained_s]
    if not after:
        return []
    last = max(after, key=lambda each: each.at_s)
    if not last.needless:
        return []
    sentence = f"The remote log of site {last.site} still holds {last.needless[0]} when everything is drained."
    return [Violation("P7", NAME, sentence, (), (last.at_s,))]
