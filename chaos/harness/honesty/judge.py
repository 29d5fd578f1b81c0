"""All that a run judges of what its sites say and hold: the looks for the checkers, the lies, and how much there was to judge.

What always holds: a word that nobody said is no evidence.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from chaos.checkers.violation import Violation
from chaos.harness import resources
from chaos.harness.honesty import losses, needless, serving, well
from chaos.harness.honesty.known import Known
from chaos.harness.honesty.lacking import Lacking
from chaos.harness.nemesis import Span
from chaos.harness.pair.commands import Accepted
from chaos.harness.pair.samples import ANSWERS, Sample
from chaos.harness.promises import Looked
from chaos.history.history import History


def status_looked_at(samples: Iterable[Sample]) -> Looked:
    told = "no site says that it serves once a later epoch has opened; one that does not, says why"
    return Looked("P8", serving.STATUS, told, sum(sample.role not in ANSWERS for sample in samples))


def judged(
    history: History, samples: Sequence[Sample], rest: Sequence[Sequence[Sample]], spans: Sequence[Span],
    accepted: Sequence[Accepted],
) -> tuple[History, list[Violation], list[Looked]]:
    """The history with what was seen beside the words, the lies, and what was looked at. `rest`: looks at the idle pair."""
    in_order = sorted(samples, key=lambda sample: sample.at_s)
    known = Known(history)
    risks, copies = Lacking(in_order, known).looks()
    remote_logs = needless.looks(in_order, spans, known)
    waits = well.waits(spans, history)
    found = [
        *serving.check(in_order, known), *serving.otherwise(in_order), *well.check(in_order, waits),
        *losses.check(history, accepted),
    ]
    swollen, warm = resources.memory(in_order)
    at_rest = sum(len(looks) for looks in rest[1:])
    answers = [sample for sample in in_order if sample.role not in ANSWERS]
    looked = [
        status_looked_at(in_order),
        Looked("P8", serving.MODE, "a status shows the mode that the register holds", len(answers)),
        Looked("P8", serving.POSITIONS, "an active shows no less than it has acknowledged",
               sum(sample.committed is not None and sample.serves for sample in answers)),
        Looked("P4", serving.FRESH, "a standby that says how far it is behind at most has what was acknowledged before",
               sum(sample.fresh_seq is not None for sample in answers)),
        Looked("P8", serving.ONE_WORD, "health and metrics say what the status says", len(answers)),
        Looked("P8", well.NAME, f"no site says for {well.WELL_S:g} s that all is well while its clients wait in vain",
               len(waits)),
        Looked("P8", serving.AT_REST, "a pair that is whole and idle names no trouble, no lag, and nothing at risk", at_rest),
        Looked("P6", losses.NAME, "a loss manifest names what is lost, and nothing that was acknowledged as sync",
               losses.named_count(history) + len(accepted)),
        Looked("I6", resources.NAME, "an idle gateway holds no more descriptors, threads and files than at the beginning",
               at_rest),
        Looked("I6", resources.MEMORY, f"a gateway that is warm after {resources.WARM_S:.0f} s takes hardly more memory later",
               warm),
    ]
    seen = replace(history, risk_looks=tuple(risks), copies=tuple(copies), remote_logs=tuple(remote_logs))
    return losses.with_what_went_with_a_site(seen, accepted, spans), [*found, *swollen], looked
