"""False answers: what a site answers to the other one's questions for a while, instead of the truth.

What always holds: the site itself does what it was asked, and only its answer is false; each of them contradicts what the site
that asked knows for itself, so it must count as no answer. An answer that could be true is not among them: what a site says of
its own log alone, nobody else knows. liar.py gives them. Source: protocol.md section 7.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from remote_log.replication.messages import DRAIN, EPOCHS, FOLLOW, MERGE, REPLICATE, ROWS, STATUS, STEP_DOWN
from switchover.facts import FACTS

Answer = dict[str, Any]
_NOBODY: Final = "c"  # no site of a pair
FALSE_ANSWERS: dict[str, tuple[tuple[str, ...], Callable[[Answer], Answer]]] = {
    "site": ((STATUS, FACTS), lambda said: {"site": _NOBODY}),
    "role": ((STATUS, FACTS), lambda said: {"role": "KING"}),
    "facts-epoch": ((FACTS,), lambda said: {"met_epoch": 1 << 62}),
    "facts-number": ((FACTS,), lambda said: {"lease_left_s": float("nan")}),
    "status-number": ((STATUS,), lambda said: {"applied_seq": -1}),
    "drained-nothing": ((DRAIN,), lambda said: {"last_seq": 0}),
    "drained-far": ((DRAIN,), lambda said: {"last_seq": 1 << 62}),
    "drained-before": ((DRAIN,), lambda said: {"epoch": said["epoch"] - 1}),
    "drained-later": ((DRAIN,), lambda said: {"epoch": said["epoch"] + 1}),
    "stopped-far": ((STEP_DOWN,), lambda said: {"durable_seq": 1 << 62}),
    "stopped-before": ((STEP_DOWN,), lambda said: {"epoch": said["epoch"] - 1}),
    "stopped-later": ((STEP_DOWN,), lambda said: {"epoch": said["epoch"] + 1}),
    "epochs-later": ((EPOCHS,), lambda said: {"epoch": 1 << 38}),
    "epochs-none": ((EPOCHS,), lambda said: {"history": []}),
    "epochs-begin": ((EPOCHS,), lambda said: {"begins_after": 1 << 61}),
    "epochs-end": ((EPOCHS,), lambda said: {"applied_seq": 0}),
    "rows-none": ((ROWS,), lambda said: {"rows": []}),
    "rows-time": ((ROWS,), lambda said: {"last_timestamp": (1 << 64) - 2}),
    "merged": ((MERGE,), lambda said: {"merged": said["merged"] + 1}),
    "absent": ((MERGE,), lambda said: {"absent": [(1 << 50, b"never sent")]}),
    "position": ((FOLLOW, REPLICATE), lambda said: {"applied_seq": 1 << 61}),
    "position-epoch": ((FOLLOW, REPLICATE), lambda said: {"applied_epoch": 1 << 38}),
    "position-durable": ((FOLLOW, REPLICATE), lambda said: {"durable_seq": said["applied_seq"] + 1}),
    "position-crc": ((FOLLOW, REPLICATE), lambda said: {"applied_crc": (said["applied_crc"] or 0) ^ 1}),
    "no-number": (
        (STATUS, FACTS, DRAIN, STEP_DOWN, EPOCHS, FOLLOW, REPLICATE),
        lambda said: dict.fromkeys(said.keys() & {"epoch", "last_seq", "durable_seq", "applied_seq"}, "seven"),
    ),
}
