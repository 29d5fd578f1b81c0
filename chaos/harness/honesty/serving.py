"""P8: a site shows truly whether it serves, in which mode, how far it is, and why it does not serve.

What always holds: a look counts from when it was asked for to when it was answered, so that a site is held only to what was so
at one moment of that time; a site that says nothing says nothing false. Each kind of lie counts once for each site and epoch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

from chaos.checkers.violation import Violation
from chaos.harness.honesty.known import Known
from chaos.harness.pair.samples import ANSWERS, FRESH_S, Sample
from gateway.site.serving_judgement import STANDBY_STORAGE

STATUS, MODE, POSITIONS, ONE_WORD, AT_REST = "status", "said_mode", "positions", "one_word", "at_rest"
FRESH = "fresh"
_ACTIVE = ("ACTIVE", "DOWNGRADE_ACTIVE", "DRAINING")


def check(samples: Iterable[Sample], known: Known) -> list[Violation]:
    told: set[tuple[str, str, int | None]] = set()
    found = []
    for sample in samples:
        if sample.role in ANSWERS:
            continue
        lies = (*_serves(sample, known), *_mode(sample, known), *_positions(sample, known), *_fresh(sample, known))
        for checker, sentence in lies:
            if (checker, sample.site, sample.epoch) not in told:
                told.add((checker, sample.site, sample.epoch))
                found.append(Violation("P8", checker, f"Site {sample.site} says at {sample.told_s:.3f} s {sentence}", (),
                                       (sample.at_s, sample.told_s)))
    return found


def _serves(sample: Sample, known: Known) -> Iterator[tuple[str, str]]:
    if sample.serves and sample.epoch is not None:
        later = [one for one in known.history.opened if one.epoch > sample.epoch and one.at_s < sample.at_s]
        if later:
            yield STATUS, (f"that it serves in epoch {sample.epoch}, and site {later[0].site} had opened epoch"
                           f" {later[0].epoch} before.")
    if not (sample.serves or sample.follows or sample.why):
        yield STATUS, f"that it neither serves nor follows ({sample.role}), and not why."


def _mode(sample: Sample, known: Known) -> Iterator[tuple[str, str]]:
    """An active shows the mode of its epoch, anyone else that of the register; neither may know of a change at once."""
    if sample.mode not in ("sync", "async"):
        return
    epoch = sample.epoch if sample.role in _ACTIVE else None
    held = known.modes(epoch, sample.at_s - known.history.limits.mode_slack_s, sample.told_s)
    if held and sample.mode not in held:
        yield MODE, f"that the mode of epoch {sample.epoch} is {sample.mode}; the register held {' and '.join(sorted(held))}."


def _positions(sample: Sample, known: Known) -> Iterator[tuple[str, str]]:
    if sample.role not in _ACTIVE or sample.epoch is None or sample.committed is None or sample.applied is None:
        return
    if not known.is_active(sample.site, sample.epoch, sample.at_s, sample.told_s):
        return
    acknowledged = known.acknowledged(sample.epoch, sample.at_s)
    for what, shown in (("committed", sample.committed), ("applied", sample.applied)):
        if shown < acknowledged:
            yield POSITIONS, f"that it has {what} {shown}, and clients had an acknowledgement of {acknowledged} before."
    if not (sample.durable or 0) <= sample.applied <= sample.committed:
        yield POSITIONS, f"that {sample.durable} is durable, {sample.applied} applied and {sample.committed} committed."


def _fresh(sample: Sample, known: Known) -> Iterator[tuple[str, str]]:
    """A standby that is at most so much behind has what was acknowledged before."""
    if sample.fresh_seq is None or sample.epoch is None:
        return
    acknowledged = known.acknowledged(sample.epoch, sample.at_s - FRESH_S)
    if sample.fresh_seq < acknowledged:
        yield FRESH, (f"that it is at most {FRESH_S:g} s behind, and has applied {sample.fresh_seq}: {acknowledged} was"
                      f" acknowledged before {sample.at_s - FRESH_S:.3f} s.")


def otherwise(samples: Sequence[Sample]) -> Iterator[Violation]:
    """Health and metrics that contradict the status in two looks in a row: one may fall between two changes."""
    for site in sorted({sample.site for sample in samples}):
        looks = [sample for sample in samples if sample.site == site and sample.role not in ANSWERS]
        for before, after in pairwise(looks):
            if before.otherwise and after.otherwise:
                sentence = f"Site {site} does not say one thing by all ways at {after.told_s:.3f} s: {after.otherwise[0]}."
                yield Violation("P8", ONE_WORD, sentence, (), (before.at_s, after.told_s))
                break


def at_rest(looks: Sequence[Sample]) -> list[str]:
    """Returns what a site of a pair that is whole and idle says against itself. `looks`: one at each site."""
    found = []
    for look in looks:
        found += [f"Site {look.site} is at rest, and names a trouble: {told}." for told in look.troubles if not _kept(told)]
        if look.role == "ACTIVE":
            if not (look.reads and look.writes):
                found.append(f"Site {look.site} is at rest and active, and does not serve: {look.why}.")
            if (look.at_risk, look.at_risk_exact, look.lag_records) != (0, True, 0):
                risk = f"{look.at_risk} records at risk (exact: {look.at_risk_exact}), a lag of {look.lag_records}"
                found.append(f"Site {look.site} is at rest and active, and shows {risk}.")
        elif not look.follows:
            found.append(f"Site {look.site} is at rest, and is {look.role} and does not follow: {look.why}.")
    return found


def _kept(told: str) -> bool:
    """Says whether people are to see it although it is over."""
    return told.startswith((f"{STANDBY_STORAGE}: ", "left out: "))
