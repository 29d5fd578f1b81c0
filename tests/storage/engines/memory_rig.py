"""The engine contract's hands on the dumb twin, and on what is made of it."""

from __future__ import annotations

from storage.engines.memory.engine import MemoryEngine


class MemoryRig:
    def __init__(self, engine: MemoryEngine | None = None) -> None:
        self.engine = engine or MemoryEngine()

    async def crash(self) -> None:
        self.engine.crash(0)

    async def restart(self) -> None:
        await self.engine.close()
        self.engine.crash()

    def break_down(self) -> None:
        self.engine.break_down("injected")

    def repair(self) -> None:
        self.engine.repair()
