"""The hot path and the plain routes answer the same, whatever the bytes and wherever they are cut."""

from __future__ import annotations

import pytest

from tests.gateway.http.differential import run


@pytest.mark.parametrize("seed", [1, 2])
async def test_hot_and_plain_answer_the_same(seed: int) -> None:
    """`make fuzz` sends 40,000 requests of another seed each time."""
    fuzzer = await run(1500, seed)
    assert 0.2 < fuzzer.refused / fuzzer.requests < 0.8
    assert 0.02 < fuzzer.unknown / fuzzer.requests < 0.3
