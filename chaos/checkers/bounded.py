"""P7, I6: the remote log holds what the other site has not durably applied, and the open segment, no more.

What always holds: what is needless goes within `trim_slack_s`; when drained at most `segments_drained` segments are left.
While an epoch is asynchronous its remote log is not written and not trimmed, so it is judged in synchronous mode only.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Sequence

from chaos.checkers.violation import Violation
from chaos.history import History, RemoteLog

NAME = "bounded"


def check(history: History) -> list[Violation]:
    found: list[Violation] = []
    slack_s, segment_bytes = history.limits.trim_slack_s, history.limits.segment_bytes
    by_epoch: dict[int, list[RemoteLog]] = {}
    for sample in sorted(history.remote_logs, key=lambda each: each.at_s):
        by_epoch.setdefault(sample.epoch, []).append(sample)
    for epoch, samples in by_epoch.items():
        modes = sorted((each.at_s, each.mode) for each in history.modes if each.epoch == epoch)
        window: deque[RemoteLog] = deque()  # needed bytes descending: the largest of the last `slack_s` stands first
        for sample in samples:
            while window and window[-1].needed_bytes <= sample.needed_bytes:
                window.pop()
            window.append(sample)
            while window[0].at_s < sample.at_s - slack_s:
                window.popleft()
            if sample.at_s - samples[0].at_s < slack_s or _async_within(modes, sample.at_s - slack_s, sample.at_s):
                continue
            allowed = window[0].needed_bytes + segment_bytes
            if sample.bytes > allowed:
                sentence = (
                    f"The remote log of site {sample.site}, epoch {epoch}, holds {sample.bytes} bytes in {sample.segments}"
                    f" segments; needed are {window[0].needed_bytes} and an open segment of {segment_bytes}."
                )
                found.append(Violation("P7", NAME, sentence, (), (sample.at_s,)))
                break
    return found + _drained(history)


def _async_within(modes: Sequence[tuple[float, str]], from_s: float, to_s: float) -> bool:
    first = max(0, bisect_right(modes, (from_s, "~")) - 1)
    return any(mode == "async" for at_s, mode in modes[first:] if at_s <= to_s)


def _drained(history: History) -> list[Violation]:
    drained_s = history.moment("drained")
    after = [each for each in history.remote_logs if drained_s is not None and each.at_s >= drained_s]
    if not after:
        return []
    last = max(after, key=lambda each: each.at_s)
    if last.segments <= history.limits.segments_drained:
        return []
    sentence = f"The remote log of site {last.site} still holds {last.segments} segments when everything is drained."
    return [Violation("P7", NAME, sentence, (), (last.at_s,))]
