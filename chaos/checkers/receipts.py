"""Idempotency keys and receipts: one key has one request, effect and answer, and a receipt says what became of its write.

What always holds: judged are writes that no forced takeover may have given up: of a history in which none accepted a loss and
no register was decided apart, those that were acknowledged as sync. A repeat that was not answered for sure says nothing, and
neither does a site that does not know. Source: docs/api.md (Idempotency-Key, receipts), protocol.md section 4.
"""

from __future__ import annotations

from chaos.checkers.violation import Violation
from chaos.history.history import Ack, Call, History
from chaos.history.lines import ReceiptLine, Repeat

NAME = "receipts"
OF_THE_FIRST = ("ok", "precondition-failed")  # no answer to an update of a row that is never there
REFUSED = frozenset(("precondition-failed", "conflict", "not-found", "invalid-input", "malformed-body", "too-large"))


def check(history: History) -> list[Violation]:
    calls = {call.id: call for call in history.calls}
    others = [
        _told(calls[each.call], each, f"has its answer given to another request under its key: {each.error or each.result}")
        for each in history.repeats if each.other and (each.error or each.result) in OF_THE_FIRST
    ]
    if not (history.repeats or history.receipts) or history.given_up or history.apart:
        return others
    first: dict[int, Repeat] = {}  # the first repeat that was acknowledged, of calls that were not
    found: list[Violation] = []
    for repeat in history.repeats:
        if repeat.other:
            continue
        call = calls[repeat.call]
        ack = _ack(call)
        if repeat.result == "ok":
            before = first.setdefault(call.id, repeat) if ack is None else ack
            if before.version != repeat.version or (before.epoch, before.seq) != (repeat.epoch, repeat.seq):
                found.append(_told(call, repeat, f"was acknowledged as {_place(before)}, and repeated as {_place(repeat)}"))
        elif repeat.error in REFUSED and (ack is not None or call.id in first):
            found.append(_told(call, repeat, f"was acknowledged, and is refused when it is repeated: {repeat.error}"))
    return [*others, *found, *(each for told in history.receipts for each in _judged(calls[told.call], told))]


def _ack(call: Call) -> Ack | None:
    return call.outcome.ack if call.outcome is not None else None


def _judged(call: Call, told: ReceiptLine) -> list[Violation]:
    ack = _ack(call)
    assert ack is not None
    if told.said == "survived" and told.held_seq is not None and told.held_seq < ack.seq:
        sentence = f"Site {told.site} says that call {call.id} survived, at {_place(ack)}, and it holds {told.held_seq} only."
        return [Violation("P1", NAME, sentence, (call.id,), (told.at_s,))]
    wrong = told.said == "lost" or (told.last and told.said != "survived")
    if ack.mode != "sync" or not wrong:
        return []
    sentence = f"Site {told.site} says at {told.at_s:.3f} s that call {call.id}, acknowledged as {_place(ack)}, is {told.said}."
    return [Violation("P1", NAME, sentence, (call.id,), (told.at_s,))]


def _place(at: Ack | Repeat) -> str:
    return f"version {at.version} at {at.epoch}:{at.seq}"


def _told(call: Call, repeat: Repeat, what: str) -> Violation:
    return Violation("P3", NAME, f"Call {call.id} {what}.", (call.id,), (repeat.from_s, repeat.to_s))
