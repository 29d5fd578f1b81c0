"""A target of a fuzzer: one reader of bytes, valid inputs for it, and what it may say of all others."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from random import Random
from typing import Any, TypeVar

T = TypeVar("T")


def as_it_is(data: bytes) -> bytes:
    return data


def nothing() -> None:
    pass


@dataclass(frozen=True, slots=True)
class Target:
    """`made` makes a valid input. `read` reads one, and raises one of `refusals` for what is none. `again`: the bytes of what
    was read, where reading them must give an equal value. `repair` corrects checksums, so that a change comes past them.
    `structure`: json or msgpack, where the input is that. `end` lets go what `read` keeps from one input to the next."""

    name: str
    made: Callable[[Random], bytes]
    read: Callable[[bytes], Any]
    refusals: tuple[type[Exception], ...] = ()
    again: Callable[[Any], bytes] | None = None
    repair: Callable[[bytes], bytes] = as_it_is
    structure: str = ""
    end: Callable[[], None] = nothing


def driven(coroutine: Coroutine[Any, Any, T]) -> T:
    """The result of a coroutine that waits for nothing."""
    try:
        coroutine.send(None)
    except StopIteration as done:
        found: T = done.value
        return found
    coroutine.close()
    raise AssertionError("the coroutine waits for something: nothing here makes it continue")
