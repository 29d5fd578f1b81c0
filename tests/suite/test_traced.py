"""`traced` says how many bytes are held, were held at the worst moment, and wait for the collector."""

from __future__ import annotations

import pytest

from tests.suite.traced import Taken, in_own_process, run_in_own_process, traced

MIB = 1 << 20


def _take(*, cycle: bool) -> tuple[Taken, Taken]:
    with traced(collector=False) as one:
        kept = bytearray(MIB)
        bytearray(3 * MIB)
        if cycle:
            held: list[object] = [bytearray(2 * MIB)]
            held.append(held)
            del held
    with traced() as other:
        pass
    assert len(kept) == MIB
    return one, other


@pytest.mark.parametrize("cycle", [False, True])
def test_what_is_held_and_what_was(cycle: bool) -> None:
    one, other = in_own_process(_take, cycle=cycle)
    assert one.held_bytes == pytest.approx((3 if cycle else 1) * MIB, abs=10_000)
    assert one.peak_bytes == pytest.approx(4 * MIB, abs=10_000)
    assert abs(other.held_bytes) < 10_000


async def _fail() -> None:
    raise RuntimeError("of the work")


def test_an_error_of_the_work_fails_the_test() -> None:
    with pytest.raises(RuntimeError, match="of the work"):
        run_in_own_process(_fail)


def test_this_process_is_never_traced() -> None:
    with pytest.raises(AssertionError, match="in_own_process"), traced():
        pass
