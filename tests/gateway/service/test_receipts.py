"""Receipts: their form, and what a site may say of a write from its recorded epochs."""

from __future__ import annotations

import base64
import struct
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.service.receipts import Receipt, decode_receipt, encode_receipt, receipt_outcome
from storage.engine import EpochEntry
from twinlog.errors import InvalidInput

# epoch 3 was given up as a whole; epoch 5 continues epoch 1 behind 120
HISTORY = (EpochEntry(1, 1, 0, "a", "bootstrap"), EpochEntry(5, 121, 120, "a", "takeover"))


def _outcome(epoch: int, seq: int, *, applied: int = 140, history: tuple[EpochEntry, ...] = HISTORY) -> str:
    engine: Any = SimpleNamespace(applied=SimpleNamespace(epochs=history, seq=applied))
    return receipt_outcome(engine, encode_receipt(7, epoch, seq, "sync")).outcome


@pytest.mark.parametrize("mode", ["sync", "async"])
def test_a_receipt_reads_back_as_it_was(mode: str) -> None:
    assert decode_receipt(encode_receipt(7, 3, 2**60, mode)) == Receipt(7, 3, 2**60, mode)  # type: ignore[arg-type]


def test_what_became_of_a_write() -> None:
    assert _outcome(1, 120) == "survived"
    assert _outcome(1, 121) == "lost"  # the log continues behind 120 without it
    assert _outcome(5, 140) == "survived"
    assert _outcome(5, 141) == "unknown"  # not applied here, or not yet
    assert _outcome(1, 100, applied=99) == "unknown"


def test_an_epoch_that_the_log_left_out_is_lost_and_one_beyond_its_ends_is_unknown() -> None:
    late = (EpochEntry(2, 1, 0, "a", "bootstrap"), EpochEntry(5, 121, 120, "a", "takeover"))
    assert _outcome(3, 110) == "lost"
    assert _outcome(6, 150) == "unknown"
    assert _outcome(1, 50, history=late) == "unknown"
    assert _outcome(1, 50, history=()) == "unknown"


@pytest.mark.parametrize("fields", [(2, 1, 0, 1, 1), (0, 1, 0, 1, 1), (1, 2, 0, 1, 1)])
def test_a_receipt_of_another_form_is_refused(fields: tuple[int, ...]) -> None:
    text = base64.urlsafe_b64encode(struct.pack("<BBHQQ", *fields)).decode().rstrip("=")
    with pytest.raises(InvalidInput, match="a format that this release does not know"):
        decode_receipt(text)


@pytest.mark.parametrize("text", ["", "a", "not a receipt", "AQEHAAEAAAAAAAAAAQAAAAAAAA"[:-6], "é" * 27])
def test_what_is_no_receipt_is_refused(text: str) -> None:
    with pytest.raises(InvalidInput, match="this is not a receipt"):
        decode_receipt(text)
