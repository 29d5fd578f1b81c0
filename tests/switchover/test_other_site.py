"""The checks of the other site's answers."""

from __future__ import annotations

import ast
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from remote_log.replication.messages import (
    DrainReply,
    EpochsReply,
    LogPoint,
    MergeReply,
    MergeRequest,
    StatusReply,
    StoppedReply,
    decode_reply,
)
from remote_log.replication.understanding import Understanding
from switchover.facts import SiteFacts
from switchover.other_site import OtherSite
from tests.storage.disk.memory_files import MemoryFiles
from twinlog.errors import MalformedBody, PeerError, Refused, RegisterWentBack

ROOT = Path(__file__).parents[2]
FACTS = SiteFacts(
    site="b", pair="orders", release="1", wall_ms=1_700_000_000_000, lease_s=2, drift_margin=0.01, initial_active="a",
    policy="protect", role="STANDBY", epoch=3, mode="sync", applied_seq=90, durable_seq=80, committed_seq=90,
)
STATUS = StatusReply("b", "STANDBY", 3, "sync", 90, 80, 90, "")
EPOCHS = EpochsReply(3, 90, [(1, 1, 0, "a", "bootstrap"), (3, 50, 49, "b", "takeover")], True, 40)
DRAINED, STOPPED = DrainReply(100, 3), StoppedReply(3, 104)
ASKED = MergeRequest([(7, "upsert", b"k", b"v", 5), (7, "upsert", b"l", b"v", 6)])
MERGED = MergeReply(1, 1, [(7, b"l")])
AT = LogPoint(90, 3)
PAIR = "a1" * 8

Ask = Callable[[OtherSite], Awaitable[object]]
QUESTIONS: dict[str, tuple[Ask, msgspec.Struct]] = {
    "status": (lambda other: other.status(1), STATUS),
    "facts": (lambda other: other.facts(1), FACTS),
    "epochs": (lambda other: other.epochs(AT, 1), EPOCHS),
    "drain": (lambda other: other.drain("p", AT, 1), DRAINED),
    "step_down": (lambda other: other.step_down("p", DRAINED, 1), STOPPED),
    "merge": (lambda other: other.merge(ASKED, 1), MERGED),
}
LIES: dict[str, tuple[str, dict[str, Any], str]] = {
    "status of this site": ("status", {"site": "a"}, "says that it is site 'a', and not 'b': correct peer.url"),
    "status, no role": ("status", {"role": "KING"}, "there is no role 'KING'"),
    "facts of this site": ("facts", {"site": "a"}, "correct peer.url"),
    "facts, no role": ("facts", {"role": ""}, "there is no role ''"),
    "facts, epoch": ("facts", {"epoch": 1 << 62}, "is no SiteFacts"),
    "facts, met epoch": ("facts", {"met_epoch": 1 << 62}, "is no SiteFacts"),
    "facts, sequence": ("facts", {"applied_seq": -1}, "is no SiteFacts"),
    "facts, no number": ("facts", {"lease_left_s": float("nan")}, "is no SiteFacts"),
    "facts, for ever": ("facts", {"lease_left_s": 1e300}, "is no SiteFacts"),
    "facts, long": ("facts", {"register_went_back": "x" * 70_000}, "is no SiteFacts"),
    "log begins behind its end": ("epochs", {"begins_after": 91}, "its log begins after 91, and it has applied 90"),
    "epoch begins behind the end": ("epochs", {"applied_seq": 49}, "epoch 3 begins at 50, and it has applied 49"),
    "holds what comes later": ("epochs", {"applied_seq": 89}, "its log, which ends at 89, holds sequence 90"),
    "drained before what is here": ("drain", {"last_seq": 89}, "its log ends at sequence 89 of epoch 3, and this site has"),
    "drained in an older epoch": ("drain", {"epoch": 2}, "its log ends at sequence 100 of epoch 2"),
    "drained far ahead": ("drain", {"last_seq": 1 << 62}, "and this site has applied 90"),
    "stopped in another epoch": ("step_down", {"epoch": 4}, "it stopped in epoch 4, and was drained in 3"),
    "stopped far ahead": ("step_down", {"durable_seq": 1 << 62}, "and its log ended at 100 when it was drained"),
    "merged more": ("merge", {"merged": 2}, "2 merged and 1 skipped are not 2"),
    "merged none": ("merge", {"merged": 0, "skipped": 0}, "0 merged and 0 skipped are not 2"),
    "absent, never sent": ("merge", {"absent": [(7, b"m")]}, "rows that were not sent"),
    "absent twice": ("merge", {"absent": [(7, b"l"), (7, b"l")]}, "one of them twice"),
}


class Wire:
    """A transport to a site that answers `words`, or raises `error`."""

    def __init__(self, words: dict[str, Any], error: Exception | None = None) -> None:
        self._words, self._error = words, error

    async def call(self, method: str, message: dict[str, Any], kind: Any, timeout_s: float) -> Any:
        if self._error is not None:
            raise self._error
        return decode_reply(kind, method, msgspec.msgpack.encode(self._words))


def other(wire: Wire) -> OtherSite:
    return OtherSite("b", wire, PAIR, Understanding(MemoryFiles()))


@pytest.mark.parametrize("question", QUESTIONS)
async def test_an_honest_answer_comes_through(question: str) -> None:
    ask, answer = QUESTIONS[question]
    assert await ask(other(Wire(msgspec.structs.asdict(answer)))) == answer


@pytest.mark.parametrize("lie", LIES)
async def test_an_answer_that_does_not_fit_is_a_peer_error(lie: str) -> None:
    question, changed, why = LIES[lie]
    ask, answer = QUESTIONS[question]
    with pytest.raises(PeerError) as raised:
        await ask(other(Wire({**msgspec.structs.asdict(answer), **changed})))
    assert why in raised.value.message


async def test_a_merge_that_puts_absent_rows_leaves_none_out() -> None:
    asked = msgspec.structs.replace(ASKED, put_absent=True)
    with pytest.raises(PeerError, match="leaves out absent rows"):
        await other(Wire(msgspec.structs.asdict(MERGED))).merge(asked, 1)


async def test_without_a_drain_nothing_is_compared_and_a_restarted_site_may_hold_less() -> None:
    far = msgspec.structs.asdict(StoppedReply(9, 1 << 62))
    assert (await other(Wire(far)).step_down("p", None, 1)).epoch == 9
    less = msgspec.structs.asdict(StoppedReply(3, 10))
    assert (await other(Wire(less)).step_down("p", DRAINED, 1)).durable_seq == 10


@pytest.mark.parametrize("question", QUESTIONS)
async def test_that_its_register_went_back_is_the_finding_of_the_other_site(question: str) -> None:
    with pytest.raises(Refused, match="site b answers: the register is an older copy"):
        await QUESTIONS[question][0](other(Wire({}, RegisterWentBack("the register is an older copy"))))


@pytest.mark.parametrize("question", QUESTIONS)
async def test_a_question_that_the_other_site_cannot_read_is_no_fault_of_whoever_asks_this_one(question: str) -> None:
    with pytest.raises(PeerError) as raised:
        await QUESTIONS[question][0](other(Wire({}, MalformedBody("the body is no such thing"))))
    assert raised.value.message == (
        f"the other site does not understand {question} of this one: the body is no such thing; `twinlog status` shows both "
        "releases"
    )


def test_only_the_shipper_and_this_room_call_the_transport() -> None:
    callers = set()
    for folder in ("gateway", "storage", "remote_log", "switchover"):
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text())):
                if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "call"):
                    continue
                if "transport" in ast.unparse(node.func.value):
                    callers.add(str(path.relative_to(ROOT)))
    assert callers == {"remote_log/replication/shipper.py", "switchover/other_site.py"}
