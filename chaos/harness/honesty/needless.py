"""Looks at the segments of the remote log that nobody needs any more, as the checker `bounded` takes them.

What always holds: a segment counts as needless by what the other site had said before the look, and only where nothing was
broken then: a fault may keep the active from deleting it, and time counts anew behind the fault.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from chaos.harness.honesty.known import Known
from chaos.harness.nemesis import Span
from chaos.harness.pair.samples import ANSWERS, Sample
from chaos.harness.pair.sites import OTHER
from chaos.history.history import RemoteLogLine

TRIM_SLACK_S = 16.0  # the trimmer's round under way and two more, each ended by the deadline of a call without an answer
HEARD_S = 1.5


def looks(samples: Sequence[Sample], spans: Iterable[Span], known: Known) -> list[RemoteLogLine]:
    """`samples` in the order of their times."""
    broken = [span for span in spans if not span.skipped]
    newest: dict[str, Sample] = {}
    found = []
    for sample in samples:
        newest[sample.site] = sample
        if sample.there is None or sample.epoch is None:
            continue
        if not known.is_active(sample.site, sample.epoch, sample.at_s, sample.told_s):
            continue
        held = _held(newest.get(OTHER[sample.site]), sample)
        if any(span.from_s <= sample.told_s and sample.at_s <= span.to_s for span in broken):
            held = 0
        needless = tuple(name for name, last_seq in sample.there.older if last_seq <= held)
        size = sample.remote_log_bytes or 0
        found.append(RemoteLogLine(sample.site, sample.epoch, sample.at_s, size, needless))
    return found


def _held(other: Sample | None, sample: Sample) -> int:
    """Returns the sequence that the other site said to hold durably, as it followed; 0: it did not say so lately."""
    if other is None or other.role in ANSWERS or not other.follows or other.troubles or other.epoch != sample.epoch:
        return 0
    return (other.durable or 0) if sample.at_s - HEARD_S <= other.told_s <= sample.at_s else 0
