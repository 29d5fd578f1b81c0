"""A client that comes back to its writes: it repeats one under its idempotency key, sends another one, or asks for a receipt.

What always holds: only what was acknowledged as sync, or has an unknown outcome, is repeated, and it is the same request to the
byte; another request under a key of before has no effect of its own; a run whose plan does not ask for this draws nothing and
asks nothing here.
Source: docs/api.md (Idempotency-Key, receipts); the checker `receipts` judges the answers.
"""

from __future__ import annotations

from collections import deque

from chaos.history.history import Call, Mutation, Operation, Recorder
from chaos.history.lines import ReceiptLine, Repeat
from chaos.simulate.actors.client import SimClient
from chaos.simulate.plan import SITES
from chaos.simulate.world import World
from gateway.service.receipts import encode_receipt, receipt_outcome

KEPT = 12  # of each client: the last ones, of the last seconds
WRITES = ("write", "conditional", "batch")
NOWHERE = "never-there"  # the key of a row


class Again:
    """Comes back to the writes of the client `name`."""

    def __init__(self, world: World, recorder: Recorder, client: SimClient, name: str) -> None:
        self._world, self._recorder, self._client = world, recorder, client
        self._share = world.plan.knobs.again
        self._chance = world.stream(f"again {name}")
        self._others = world.stream(f"other {name}")
        self._kept: deque[tuple[Call, str]] = deque(maxlen=KEPT)
        self._refused: deque[tuple[Call, str]] = deque(maxlen=KEPT)

    def keep(self, call: Call) -> None:
        """A call of this client has ended."""
        outcome = call.outcome
        if not self._share or call.operation.kind not in WRITES or outcome is None:
            return
        if outcome.result == "not_applied":
            if outcome.error == "precondition-failed":
                self._refused.append((call, self._client.key))
            return
        if outcome.ack is None or outcome.ack.mode == "sync":
            self._kept.append((call, self._client.key))

    async def ask_another(self) -> None:
        """Sends another request under the key of one that was answered, or refused, in a share of the turns."""
        if not self._share or self._others.random() >= self._share:
            return
        used = [each for each in (self._kept, self._refused) if each]
        if not used:
            return
        call, key = self._others.choice(self._others.choice(used))
        row = next((change.row for change in call.operation.mutations if change.row), None)
        if row is None:
            return
        from_s = self._world.loop.now_s
        other = Operation("write", call.operation.table, mutations=(Mutation("update", NOWHERE, row),))
        outcome = await self._client.repeat(other, key)
        self._recorder.note(Repeat(call.id, from_s, self._world.loop.now_s, outcome.result, outcome.error, other=True))

    async def come_back(self) -> None:
        """Comes back to one write, in a share of the turns."""
        if not self._share or not self._kept or self._chance.random() >= self._share:
            return
        call, key = self._chance.choice(self._kept)
        receipt = _receipt(call)
        if receipt and self._chance.random() < 0.4:
            site = self._chance.choice(SITES)
            engine = self._world.machines[site].engine
            before = engine.applied.seq
            said = await self._client.ask_receipt(site, receipt)
            if said:
                after = engine.applied.seq
                held = after if after >= before else None  # it was emptied meanwhile, and had more in between
                self._recorder.note(ReceiptLine(call.id, site, said, self._world.loop.now_s, held_seq=held))
            return
        from_s = self._world.loop.now_s
        outcome = await self._client.repeat(call.operation, key)
        ack = outcome.ack
        place = (ack.version, ack.epoch, ack.seq) if ack is not None else (0, 0, 0)
        self._recorder.note(Repeat(call.id, from_s, self._world.loop.now_s, outcome.result, outcome.error, *place))

    def ask_last(self) -> None:
        """At the end, when both sites have everything: each one knows of each write that is kept here."""
        for call, _ in self._kept:
            if receipt := _receipt(call):
                for site in SITES:
                    said = receipt_outcome(self._world.machines[site].engine, receipt).outcome
                    self._recorder.note(ReceiptLine(call.id, site, said, self._world.loop.now_s, last=True))


def _receipt(call: Call) -> str:
    """Returns the receipt of a call, "" if it was not acknowledged."""
    ack = call.outcome.ack if call.outcome is not None else None
    return encode_receipt(0, ack.epoch, ack.seq, ack.mode) if ack is not None else ""
