"""Looks at what the other site could really not have, moment by moment: beside the records at risk and the lag that the active
showed, and beside what it had acknowledged as synchronous.

What always holds: what is so is never made larger than it is. What was committed counts by the acknowledgements that clients
had before the active was asked. What the other site held counts by what it says, and what its files hold, after the answer; of
one that does not run, by the most that the active can have given it; and never more than it was seen to have at a takeover. A
storage that comes back with less than it had called durable says nothing of the time before.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import inf

from chaos.harness.honesty.known import Known
from chaos.harness.pair.samples import ANSWERS, Sample
from chaos.harness.pair.sites import OTHER
from chaos.history.history import Copies
from chaos.history.lines import RiskLook
from gateway.site.metrics import SAMPLE_OLD_S

RISK_SLACK_S = SAMPLE_OLD_S * 1.3  # until a site that is not heard any more counts as it stored durably
HEARD_SLACK_S = 2.0
_OPEN = ("ACTIVE", "DOWNGRADE_ACTIVE")


class Lacking:
    """`samples` of a whole run, in the order of their times for each site."""

    def __init__(self, samples: Sequence[Sample], known: Known) -> None:
        self._known = known
        self._of = {site: [sample for sample in samples if sample.site == site] for site in OTHER}
        self._cut_off = {
            each.epoch: min(other.first_seq for other in known.history.quarantines if other.epoch == each.epoch) - 1
            for each in known.history.quarantines
        }

    def looks(self) -> tuple[list[RiskLook], list[Copies]]:
        risks: list[RiskLook] = []
        copies: list[Copies] = []
        for sample in (each for samples in self._of.values() for each in samples if each.role in _OPEN):
            if sample.epoch is None or not self._known.is_active(sample.site, sample.epoch, sample.at_s, sample.told_s):
                continue
            risks += self._risk(sample, sample.epoch)
            copies += self._copies(sample, sample.epoch)
        return sorted(risks, key=lambda each: each.at_s), sorted(copies, key=lambda each: each.at_s)

    def _risk(self, sample: Sample, epoch: int) -> list[RiskLook]:
        committed = self._known.acknowledged(epoch, sample.at_s)
        applied = min(self._applied_there(sample), self._cut_off.get(epoch, inf))
        if applied == inf:
            return []
        there = inf if sample.written_there is None else sample.written_there
        held = max(applied, min(there, self._cut_off.get(epoch, inf)))
        return [RiskLook(
            sample.site, epoch, sample.at_s, sample.at_risk, sample.lag_records, int(max(0, committed - held)),
            int(max(0, committed - applied)), self._lost_nothing(OTHER[sample.site], sample.at_s),
        )]

    def _copies(self, sample: Sample, epoch: int) -> list[Copies]:
        committed = self._known.acknowledged(epoch, sample.at_s, sync_only=True)
        if sample.mode != "sync" or not committed or sample.written_there is None:
            return []
        later = self._later(OTHER[sample.site], sample.told_s)
        if later is None and sample.written_there < committed:
            return []
        there = max(sample.written_there, later.durable or 0 if later is not None else 0)
        return [Copies(sample.site, epoch, sample.at_s, committed, committed, there)]

    def _later(self, site: str, at_s: float) -> Sample | None:
        """The first answer of a site that was asked for after this."""
        return next((each for each in self._of[site] if each.at_s >= at_s and each.role not in ANSWERS), None)

    def _applied_there(self, sample: Sample) -> float:
        """The most that the storage of the other site can have applied when `sample` was answered."""
        site = OTHER[sample.site]
        later = self._later(site, sample.told_s)
        most = inf if later is None or later.applied is None or self._was_changed(later) else later.applied
        died_s = self._died_s(site, sample.told_s)
        if died_s is None:
            return most
        given = next(
            (each.committed for each in self._of[sample.site]
             if each.at_s >= died_s and each.epoch == sample.epoch and each.committed is not None), None,
        )
        return most if given is None else min(most, given)

    def _was_changed(self, later: Sample) -> bool:
        """A storage that holds less than it had called durable was put back, moved away or lost, at a moment before `later`
        that nobody knows."""
        before = [each.durable for each in self._of[later.site] if each.at_s < later.at_s and each.durable is not None]
        return later.applied is not None and bool(before) and later.applied < before[-1]

    def _died_s(self, site: str, at_s: float) -> float | None:
        """Returns when a site that does not run at `at_s` was first seen not to run; None: it runs, or nobody looked."""
        died_s: float | None = None
        for each in self._of[site]:
            if each.role != "down":
                died_s = None
            elif died_s is None:
                died_s = each.told_s
            if each.at_s >= at_s:
                return died_s
        return None

    def _lost_nothing(self, site: str, at_s: float) -> bool:
        """Says whether it ran for some time before, and its storage did not go back."""
        lately = [each for each in self._of[site] if at_s - RISK_SLACK_S <= each.told_s <= at_s]
        applied = [each.applied for each in lately if each.applied is not None]
        return applied == sorted(applied) and not any(each.role == "down" for each in lately)
