"""A process on the virtual loop: when what it sends was decided."""

from __future__ import annotations

import asyncio

from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process


def test_what_leaves_when_a_process_is_resumed_was_decided_before_it_was_stopped() -> None:
    loop = VirtualLoop()  # type: ignore[abstract]
    process = Process("a.1")
    sent: list[tuple[float, float]] = []

    async def serve() -> None:
        for _ in range(4):
            sent.append((loop.now_s, process.decided_s(loop.now_s)))
            await asyncio.sleep(1.0)

    async def main() -> None:
        serving = process.spawn(serve())
        await asyncio.sleep(1.5)
        loop.pause(process)
        await asyncio.sleep(0.1)
        loop.pause(process)  # it stands still already
        await asyncio.sleep(1.4)
        loop.go_on(process)
        await serving

    loop.run(main(), steps_max=1000)
    assert [(round(at_s, 3), round(decided_s, 3)) for at_s, decided_s in sent] == [(0, 0), (1, 1), (3, 1.5), (4, 4)]
