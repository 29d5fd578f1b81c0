"""What became of an acknowledged write: asked later, by its receipt.

What always holds: `survived` and `lost` are said only from the recorded epoch history of this site's storage; everything
that it cannot know is `unknown`. Source: switchover-lessons.md ("durability receipts").
"""

from __future__ import annotations

from typing import Any

from gateway.service.receipts import decode_receipt
from remote_log.replication.epoch_history import common_end
from storage.engine import StorageEngine
from twinlog.errors import Refused


def receipt_outcome(engine: StorageEngine, text: str) -> dict[str, Any]:
    """Raises InvalidInput when `text` is no receipt."""
    receipt = decode_receipt(text)
    return {
        "receipt": text, "outcome": _outcome(engine, receipt.epoch, receipt.seq), "log": receipt.log,
        "epoch": receipt.epoch, "seq": receipt.seq, "mode": receipt.mode,
    }


def _outcome(engine: StorageEngine, epoch: int, seq: int) -> str:
    history = engine.epochs()
    try:
        end = common_end(history, epoch, seq)
    except Refused:
        # an epoch that the log left out, between two that it has, was given up as a whole
        return "lost" if history and history[0].epoch < epoch < history[-1].epoch else "unknown"
    if end < seq:
        return "lost"
    return "survived" if seq <= engine.applied_seq else "unknown"
