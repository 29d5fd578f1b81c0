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


def test_a_process_forgets_the_tasks_that_have_ended_and_keeps_one_at_least() -> None:
    loop = VirtualLoop()  # type: ignore[abstract]
    process = Process("a.1")

    async def main() -> None:
        ended, waits = process.spawn(asyncio.sleep(1.0)), process.spawn(asyncio.sleep(3.0))
        await asyncio.sleep(2.0)
        process.forget_ended()
        assert process.tasks == [waits]
        await waits
        process.forget_ended()
        assert process.tasks == [waits], "it is known by its tasks that it has begun"
        assert ended.done()

    loop.run(main(), steps_max=1000)


async def test_asyncio_lists_its_tasks_again_behind_a_run() -> None:
    loop = VirtualLoop()  # type: ignore[abstract]

    async def simulated() -> int:
        ended, _ = await asyncio.wait({asyncio.ensure_future(asyncio.sleep(1.0)) for _ in range(3)})
        return len(ended)

    assert loop.run(simulated(), steps_max=1000) == 3
    task = asyncio.ensure_future(asyncio.sleep(0))
    assert task in asyncio.all_tasks()
    await task
