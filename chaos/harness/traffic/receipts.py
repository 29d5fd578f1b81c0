"""Asks both sites what became of acknowledged writes, once nothing is under way.

What always holds: a seed chooses which; each answer is a line of the history.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random

from chaos.harness.pair.asked import SITES, AskedSites
from chaos.history.history import Recorder
from chaos.history.lines import ReceiptLine
from gateway.service.receipts import encode_receipt
from twinlog.errors import TwinlogError

RECEIPTS_MAX = 1000


async def ask_receipts(sites: AskedSites, recorder: Recorder, seed: int, now_s: Callable[[], float]) -> str:
    """A sentence about a site that does not answer, else an empty text."""
    acknowledged = [
        (call.id, call.outcome.ack) for call in recorder.history().calls
        if call.outcome is not None and call.outcome.ack is not None
    ]
    chosen = Random(f"{seed} receipts").sample(acknowledged, min(RECEIPTS_MAX, len(acknowledged)))
    for call_id, ack in chosen:
        receipt = encode_receipt(0, ack.epoch, ack.seq, ack.mode)
        for site in SITES:
            try:
                said = await asyncio.to_thread(sites.direct.ask, site, "GET", f"/v1/receipts/{receipt}")
            except TwinlogError as error:
                return f"Site {site} does not answer about a receipt: {error.message}"
            recorder.note(ReceiptLine(call_id, site, said["outcome"], now_s(), last=True))
    return ""
