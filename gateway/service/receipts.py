"""Receipts: opaque, URL-safe strings that name log, epoch, sequence and mode of an acknowledged write.

What always holds: `decode(encode(r)) == r`; anything else is an InvalidInput that says so; `survived` and `lost` are said only
from the recorded epoch history of this site's storage, and everything that it cannot know is `unknown`. Source: product.md 2,
switchover-lessons.md ("durability receipts").
This module is pure.
"""

from __future__ import annotations

import base64
import binascii
import struct
from typing import Literal, NamedTuple

from gateway.service.documents import Outcome, ReceiptDocument
from remote_log.replication.epoch_history import common_end
from storage.engine import StorageEngine
from twinlog.errors import InvalidInput, Refused

_FORMAT = struct.Struct("<BBHQQ")
_VERSION = 1


class Receipt(NamedTuple):
    log: int
    epoch: int
    seq: int
    mode: Literal["sync", "async"]


def encode_receipt(log: int, epoch: int, seq: int, mode: str) -> str:
    packed = _FORMAT.pack(_VERSION, mode == "sync", log, epoch, seq)
    return base64.urlsafe_b64encode(packed).decode().rstrip("=")


def decode_receipt(text: str) -> Receipt:
    """Raises InvalidInput when `text` is not a receipt of this release."""
    try:
        packed = base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
        version, sync, log, epoch, seq = _FORMAT.unpack(packed)
    except (binascii.Error, struct.error, ValueError) as error:
        raise InvalidInput("this is not a receipt: use the string that a write answered", receipt=text[:64]) from error
    if version != _VERSION or sync > 1:
        raise InvalidInput("this receipt is of a format that this release does not know", receipt=text[:64])
    return Receipt(log, epoch, seq, "sync" if sync else "async")


def receipt_outcome(engine: StorageEngine, text: str) -> ReceiptDocument:
    """Answers what became of the write that has this receipt. Raises InvalidInput when `text` is no receipt."""
    receipt = decode_receipt(text)
    outcome = _outcome(engine, receipt.epoch, receipt.seq)
    return ReceiptDocument(text, outcome, receipt.log, receipt.epoch, receipt.seq, receipt.mode)


def _outcome(engine: StorageEngine, epoch: int, seq: int) -> Outcome:
    history = engine.applied.epochs
    try:
        end = common_end(history, epoch, seq)
    except Refused:
        # an epoch that the log left out, between two that it has, was given up as a whole
        return "lost" if history and history[0].epoch < epoch < history[-1].epoch else "unknown"
    if end < seq:
        return "lost"
    return "survived" if seq <= engine.applied.seq else "unknown"
