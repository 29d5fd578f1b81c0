"""Names of the remote log: both ways, and what is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from remote_log.layout import EPOCH_MAX, ClaimName, RemoteLayout, SegmentName
from storage.log.segment import wal_name
from twinlog.errors import InvalidInput

LAYOUT = RemoteLayout("orders", log=3)
epochs = st.integers(1, EPOCH_MAX)
numbers = st.integers(0, 999_999)
wal_names = st.builds(wal_name, epochs, st.integers(0, 99_999_999))


def test_the_names_are_those_of_the_protocol() -> None:
    assert LAYOUT.claims_folder == "/orders/3/claims"
    assert LAYOUT.claim(7) == "/orders/3/claims/000000000007"
    assert LAYOUT.epoch_folder(7) == "/orders/3/000000000007"
    assert LAYOUT.segment(7, "000000000007-00000002", 5) == "/orders/3/000000000007/000000000007-00000002.000005"


@given(epochs, wal_names, numbers)
def test_parse_is_the_inverse(epoch: int, wal: str, n: int) -> None:
    assert LAYOUT.parse(LAYOUT.segment(epoch, wal, n)) == SegmentName(epoch, wal, n)
    assert LAYOUT.parse(LAYOUT.claim(epoch)) == ClaimName(epoch)


@given(st.tuples(epochs, wal_names, numbers), st.tuples(epochs, wal_names, numbers))
def test_names_sort_as_their_numbers_do(one: tuple[int, str, int], two: tuple[int, str, int]) -> None:
    assert (LAYOUT.segment(*one) < LAYOUT.segment(*two)) == (one < two)
    assert (LAYOUT.claim(one[0]) < LAYOUT.claim(two[0])) == (one[0] < two[0])


@pytest.mark.parametrize("path", [
    "/orders/3/claims/7", "/orders/3/claims/000000000000", "/orders/3/claims/readme", "/orders/2/claims/000000000007",
    "/orders/3/claims", "/orders/3/000000000007/notes.txt", "/orders/3/7/000000000007-00000002.000005",
    "/orders/3/000000000007/000000000007-00000002", "/other/3/000000000007/000000000007-00000002.000005",
])
def test_strangers_are_none_of_ours(path: str) -> None:
    assert LAYOUT.parse(path) is None


def test_what_cannot_be_named() -> None:
    for pair in ("", "a/b", "..", ".hidden", "a b"):
        with pytest.raises(InvalidInput):
            RemoteLayout(pair)
    for epoch in (0, -1, EPOCH_MAX + 1):
        with pytest.raises(InvalidInput):
            LAYOUT.claim(epoch)
    for wal, n in (("../x", 1), (wal_name(1, 1), 1_000_000), (wal_name(1, 1), -1)):
        with pytest.raises(InvalidInput):
            LAYOUT.segment(1, wal, n)
