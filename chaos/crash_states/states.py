"""The states that a power loss may leave, at every moment of a recording: all of them up to a number, else a seeded choice.

What always holds: at a moment with more states than `most`, the choice has first what an ordered disk leaves (everything up to
each call), then each call missing alone, each alone there, and then by chance: an ordered disk with a place more or less, and
any mixture; the same seed chooses the same.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import random
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from chaos.crash_states.calls import Call
from chaos.crash_states.disk import Disk
from chaos.crash_states.model import Model, Place, Tree

_CHANCES = (0.1, 0.5, 0.9)
WAYS = LOST, KEPT, UP_TO, WITHOUT, SOME = (
    "all of it lost", "all of it kept", "kept up to one call", "lost of one call", "some sectors and names kept",
)


@dataclass(frozen=True, slots=True)
class CrashState:
    """`marks`: what the program had said before the moment `at`, a position in the recording."""

    at: int
    marks: tuple[str, ...]
    tree: Tree


def crash_states(disk: Disk, calls: Iterable[Call], most: int, seed: int) -> Iterator[CrashState]:
    """The states before, between and behind `calls`, which `disk` takes one by one; no tree comes twice with the same marks."""
    drawn = random.Random(seed)
    events = [event for call in calls for event in ((call.began, 0, call), (call.ended, 1, call))]
    events.sort(key=lambda event: event[:2])
    told: set[tuple[tuple[str, ...], bytes]] = set()
    seen = None
    for at, is_end, call in [(-1, 1, None), *events]:
        if call is not None:
            disk.end(call) if is_end else disk.begin(call)
        now = (len(disk.marks), disk.places())
        if now == seen:
            continue
        seen = now
        for taken in choices(disk, most, drawn):
            tree = disk.tree(taken)
            state = (tuple(disk.marks), digest(tree))
            if state not in told:
                told.add(state)
                yield CrashState(at, state[0], tree)


def choices(disk: Model, most: int, drawn: random.Random) -> Iterator[dict[Place, int]]:
    """Choices for Disk.tree: all that there are, or about `most`."""
    places = disk.places()
    keys = list(places)
    if math.prod(count + 1 for count in places.values()) <= most:
        for counts in itertools.product(*(range(count + 1) for count in places.values())):
            yield dict(zip(keys, counts, strict=True))
        return
    orders = list(dict.fromkeys(disk.orders()))
    made = 0
    for taken in itertools.chain(
        [{}, places],
        (disk.taken_at(order) for order in _some(orders, most // 4, drawn)),
        (disk.taken_without(order) for order in _some(orders, most // 4, drawn)),
        (_alone(disk, order) for order in _some(orders, most // 4, drawn)),
    ):
        made += 1
        yield taken
    while made < most:
        made += 1
        kind = drawn.randrange(3)
        if kind == 0:  # a write that is torn
            taken = dict(disk.taken_at(drawn.choice(orders)))
            for key in drawn.sample(keys, min(len(keys), drawn.randrange(1, 3))):
                taken[key] = drawn.randrange(places[key] + 1)
            yield taken
        else:
            chance = drawn.choice(_CHANCES)
            yield {key: sum(drawn.random() < chance for _ in range(count)) for key, count in places.items()}


def drawn_choice(model: Model, drawn: random.Random) -> tuple[str, dict[Place, int]]:
    """One choice for Model.tree by chance, and what it is called: everything lost, everything kept, or a part in some way."""
    places, orders = model.places(), model.orders()
    way = drawn.choices(WAYS, (4, 1, 2, 2, 2))[0] if places else LOST
    if way == LOST:
        return way, {}
    if way == KEPT:
        return way, places
    if way == UP_TO:
        return way, model.taken_at(drawn.choice(orders))
    if way == WITHOUT:
        return way, model.taken_without(drawn.choice(orders))
    chance = drawn.choice(_CHANCES)
    return way, {key: sum(drawn.random() < chance for _ in range(count)) for key, count in places.items()}


def digest(tree: Tree) -> bytes:
    """Equal for trees that nobody can distinguish by names, bytes and hard links."""
    numbers: dict[int, int] = {}
    hashed = hashlib.sha256()
    for path, node in sorted(tree.items()):
        number = -1 if node is None else numbers.setdefault(node[0], len(numbers))
        content = b"" if node is None else node[1]
        hashed.update(f"{path}\0{number}\0{len(content)}\0".encode())
        hashed.update(content)
    return hashed.digest()


def _alone(disk: Model, order: int) -> dict[Place, int]:
    """Only what the call `order` changed, with what the same places were before it."""
    upto, before = disk.taken_at(order), disk.taken_at(order - 1)
    return {place: count for place, count in upto.items() if count != before.get(place, 0)}


def _some(orders: Sequence[int], most: int, drawn: random.Random) -> Sequence[int]:
    return orders if len(orders) <= most else drawn.sample(orders, most)
