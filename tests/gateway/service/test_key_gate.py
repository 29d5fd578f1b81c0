"""The key gate: whom it lets in, who waits, in which order, and that nothing is left in it."""

from __future__ import annotations

import asyncio

import pytest

from gateway.service.key_gate import KeyGate

A, B, C = (1, b"a"), (1, b"b"), (1, b"c")


async def _settled() -> None:
    """Lets everything run that can run without another event."""
    for _ in range(10):
        await asyncio.sleep(0)


async def test_blind_writes_to_one_key_pass_beside_each_other() -> None:
    gate = KeyGate()
    assert gate.try_enter([A, B])
    assert gate.try_enter([A])
    gate.leave([A, B])
    assert not gate.is_empty
    gate.leave([A])
    assert gate.is_empty


async def test_a_blind_write_does_not_enter_beside_a_hold_of_one_of_its_keys_and_counts_for_none() -> None:
    gate = KeyGate()
    await gate.hold([B])
    assert not gate.try_enter(iter([A, B]))
    gate.release([B])
    assert gate.is_empty


async def test_a_blind_write_waits_until_every_hold_of_its_keys_has_ended() -> None:
    gate = KeyGate()
    await gate.hold([A])
    await gate.hold([B])
    entering = asyncio.ensure_future(gate.enter([A, B, C]))
    gate.release([A])
    await _settled()
    assert not entering.done()
    gate.release([B])
    await _settled()
    assert entering.done()
    assert not gate.is_empty
    gate.leave([A, B, C])
    assert gate.is_empty


async def test_a_hold_waits_for_the_last_blind_write_and_keeps_later_ones_out_meanwhile() -> None:
    gate = KeyGate()
    assert gate.try_enter([A])
    assert gate.try_enter([A])
    holding = asyncio.ensure_future(gate.hold([A]))
    await _settled()
    assert not gate.try_enter([A])
    gate.leave([A])
    await _settled()
    assert not holding.done()
    gate.leave([A])
    await _settled()
    assert holding.done()
    assert not gate.is_empty
    gate.release(holding.result())
    assert gate.is_empty


async def test_one_conditional_owns_a_key_and_the_next_follows_when_it_is_released() -> None:
    gate = KeyGate()
    owned = await gate.hold([B, A, A])
    assert owned == [A, B]
    second = asyncio.ensure_future(gate.hold([B]))
    await _settled()
    assert not second.done()
    gate.release(owned)
    await _settled()
    assert second.done()
    gate.release(second.result())
    assert gate.is_empty


async def test_of_two_conditionals_that_wait_for_one_key_the_second_waits_for_the_first() -> None:
    gate = KeyGate()
    owned = await gate.hold([A])
    waiting = [asyncio.ensure_future(gate.hold([A])) for _ in range(2)]
    await _settled()
    gate.release(owned)
    await _settled()
    assert [each.done() for each in waiting] == [True, False]
    gate.release(waiting[0].result())
    await _settled()
    assert waiting[1].done()
    gate.release(waiting[1].result())
    assert gate.is_empty


async def test_conditionals_on_the_same_keys_in_other_orders_do_not_wait_for_each_other_for_ever() -> None:
    gate = KeyGate()
    assert gate.try_enter([A, B])  # so that both have to wait in the middle
    holds = [asyncio.ensure_future(gate.hold(keys)) for keys in ([A, B], [B, A])]
    await _settled()
    gate.leave([A, B])
    await _settled()
    assert [each.done() for each in holds] == [True, False]
    gate.release(holds[0].result())
    await _settled()
    assert holds[1].done()
    gate.release(holds[1].result())
    assert gate.is_empty


@pytest.mark.parametrize("blind", [True, False], ids=["behind a blind write", "behind a hold"])
async def test_a_hold_that_is_given_up_leaves_nothing_that_it_owned(blind: bool) -> None:
    gate = KeyGate()
    if blind:
        assert gate.try_enter([B])
    else:
        await gate.hold([B])
    holding = asyncio.ensure_future(gate.hold([A, B]))
    await _settled()
    holding.cancel()
    await _settled()
    assert holding.cancelled()
    assert gate.try_enter([A])
    gate.leave([A])
    if blind:
        gate.leave([B])
    else:
        gate.release([B])
    assert gate.is_empty
