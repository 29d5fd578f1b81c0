"""The schema change that a skip leaves out of sight is the one that its operator has named, by epoch and sequence."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from storage.engine import RefusedChange
from switchover.plans.skip import check_standing
from twinlog.errors import Refused

CHANGE = RefusedChange(table=7, epoch=3, seq=20, problem="no such type")


def engine(change: RefusedChange | None) -> Any:
    return SimpleNamespace(refused=change, meta=lambda name: None)


def test_the_change_that_is_named_is_the_one_at_which_the_storage_stands() -> None:
    assert check_standing("b", engine(CHANGE), {"epoch": 3, "seq": 20}) is CHANGE


@pytest.mark.parametrize(("epoch", "seq"), [(2, 20), (4, 20), (3, 19), (None, None)])
def test_another_one_is_refused_and_the_right_one_is_named(epoch: int | None, seq: int | None) -> None:
    with pytest.raises(Refused, match=f"stands at sequence 20 of epoch 3, not at {seq} of {epoch}: no such type"):
        check_standing("b", engine(CHANGE), {"epoch": epoch, "seq": seq})


def test_there_is_nothing_to_skip_where_nothing_is_refused() -> None:
    with pytest.raises(Refused, match="there is nothing to skip"):
        check_standing("b", engine(None), {"epoch": 3, "seq": 20})
