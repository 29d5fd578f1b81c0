"""Coroutine tests on virtual time: a helper for single ones, and a way to run a whole contract suite there."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

from chaos.simulate.twins.loop import VirtualLoop
from chaos.simulate.twins.process import Process

Result = TypeVar("Result")
STEPS_MAX = 1_000_000


def run(loop: VirtualLoop, work: Coroutine[Any, Any, Result], process: Process | None = None) -> Result:
    """`work` to its end, in `process` if one is given; nothing may have gone wrong beside it."""

    async def main() -> Result:
        return await (work if process is None else process.spawn(work))

    result = loop.run(main(), steps_max=STEPS_MAX)
    assert loop.errors == []
    return result


def suite(contract: type) -> type:
    """The contract's tests, each a run on the virtual loop of the fixture `loop`, which the derived class's module gives."""
    found = inspect.getmembers(contract, inspect.iscoroutinefunction)
    tests = {name: on_loop(test) for name, test in found if name.startswith("test_")}
    return type(f"Virtual{contract.__name__}", (contract,), tests)


def on_loop(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """The test as a function without coroutines, with the fixture `loop` besides its own."""
    own = inspect.signature(test)

    @functools.wraps(test)
    def driven(*args: Any, loop: VirtualLoop, **given: Any) -> None:
        run(loop, test(*args, **given))

    del driven.__wrapped__  # type: ignore[attr-defined]
    more = inspect.Parameter("loop", inspect.Parameter.KEYWORD_ONLY)
    driven.__signature__ = own.replace(parameters=[*own.parameters.values(), more])  # type: ignore[attr-defined]
    return driven
