"""Is there an order of one row's calls that explains every answer? The search of Wing and Gong, with a memory of dead ends.

For rows with conditions, deletes, repeated values (counters), where zones do not decide. What always holds: a call precedes
another only if it returned before the other was invoked; definite calls are all in the order; an unknown write stands in it
once or not at all, and never after a call that was invoked when its time was over. The versions that the pair gave to its
writes say in which order to try them, and nothing else: where they are right, the cost is that of reading the calls once; where
they are wrong, all orders are tried, and the cost grows with how many calls overlap.
"""

from __future__ import annotations

from math import inf
from typing import Any

import msgspec

from chaos.checkers.rows.facts import KEEP, KeyFacts, TableFacts, Write
from chaos.history.history import Condition

NODES_MAX = 50_000  # and as many again for each thousand calls
_NOTHING = "\0nothing"  # no unknown write waits for a call that needs it


class Undecided(Exception):
    """Too many calls overlap: the search gave up, the row is neither proven good nor bad."""


class _Step(msgspec.Struct, gc=False):
    """One call on the row. `told`: what a read returned (KEEP: no read). `refused`: the guards did not hold. `version`: of a
    write, as the pair has it; inf: not known, tried behind those that are; -inf: it only looks, and is tried before."""

    invoked_s: float
    end_s: float
    told: Any
    guards: tuple[Condition, ...]
    refused: bool
    effect: Any
    version: float = -inf


class _Node(msgspec.Struct, gc=False):
    """`low`: first definite step not taken; `taken`: bits of those above it that are; `used`: bits of unknown writes.

    `value`: of the row; `now_s`: latest invocation so far; `before`: the value before an unknown write that is not needed yet.
    """

    low: int
    taken: int
    used: int
    value: Any
    now_s: float
    before: Any


def possible(table: TableFacts, facts: KeyFacts) -> bool:
    """Raises Undecided."""
    writes = [write for write in facts.writes if write.result == "ok" and not write.lost]
    steps = [_written(write, write.end_s) for write in writes]
    steps += [_Step(s.invoked_s, s.returned_s, s.value, (), False, KEEP) for s in facts.seen]
    steps += [_Step(r.invoked_s, r.returned_s, KEEP, r.guards, True, KEEP) for r in facts.refusals]
    steps.sort(key=lambda step: step.invoked_s)
    return _Search(table, steps, _useful_unknowns(facts)).run()


def _written(write: Write, end_s: float) -> _Step:
    return _Step(write.invoked_s, end_s, KEEP, write.guards, False, write.value, write.version or inf)


def _useful_unknowns(facts: KeyFacts) -> list[_Step]:
    """Unknown writes whose effect somebody may have noticed; without one that nobody noticed, as much is possible.

    A lost one is among them: an earlier attempt at it may lie in the log of the site that was forced to take over.
    """
    wanted = {seen.value for seen in facts.seen}
    anything = bool(facts.refusals)
    for write in facts.writes:
        for guard in write.guards:
            if guard.column is not None and guard.op == "=":
                wanted.add(guard.value)
            else:
                anything = True
    unknown = [
        _written(write, inf if write.lost else write.end_s)
        for write in facts.writes
        if (write.result == "unknown" or write.lost) and write.value is not KEEP and (anything or write.value in wanted)
    ]
    unknown.sort(key=lambda step: step.invoked_s)
    return unknown


class _Search:
    def __init__(self, table: TableFacts, steps: list[_Step], unknown: list[_Step]) -> None:
        self._table, self._steps, self._unknown = table, steps, unknown
        self._dead: dict[tuple[int, int, Any, Any], list[int]] = {}  # sets of used unknown writes that lead nowhere

    def run(self) -> bool:
        stack = [_Node(0, 0, 0, None, -inf, _NOTHING)]
        count, limit = 0, NODES_MAX + NODES_MAX * len(self._steps) // 1000
        while stack:
            node = self._observed(stack.pop())
            if node.low == len(self._steps):
                return True
            if self._is_dead(node):
                continue
            count += 1
            if count > limit:
                raise Undecided(f"too many calls overlap, no order of them was found in {limit} steps (undecided)")
            stack += self._followers(node)
        return False

    def _is_dead(self, node: _Node) -> bool:
        """Whoever used fewer unknown writes from here could do all that this one can."""
        tried = self._dead.setdefault((node.low, node.taken, node.value, node.before), [])
        if any(used & node.used == used for used in tried):
            return True
        tried.append(node.used)
        return False

    def _observed(self, node: _Node) -> _Node:
        """Take what only looks and is content now: later it can be no better."""
        again = True
        while again:
            again = False
            for at in self._open(node):
                step = self._steps[at]
                if (
                    step.effect is KEEP and self._holds(step, node.value)
                    and all(node.used >> u & 1 or each.end_s >= step.invoked_s for u, each in enumerate(self._unknown))
                ):
                    node = self._take(node, at)
                    again = True
                    break
        return node

    def _open(self, node: _Node) -> list[int]:
        """Definite steps that may be next: nothing that is left returned before they were invoked."""
        steps, taken, at = self._steps, node.taken, node.low
        found: list[int] = []
        first_end_s = float("inf")
        while at < len(steps):
            step = steps[at]
            if step.invoked_s > first_end_s:
                break
            if not taken >> (at - node.low) & 1:
                found.append(at)
                first_end_s = min(first_end_s, step.end_s)
            at += 1
        return [at for at in found if steps[at].invoked_s <= first_end_s]

    def _followers(self, node: _Node) -> list[_Node]:
        """Returns what may be tried next, the likeliest last: it lies on top of the stack."""
        found: list[tuple[float, _Node]] = []
        open_steps = self._open(node)
        first_end_s = min(self._steps[at].end_s for at in open_steps)
        twins: set[tuple[Any, ...]] = set()
        for at, step in enumerate(self._unknown):
            if step.invoked_s > first_end_s:
                break
            if node.used >> at & 1 or step.end_s < node.now_s or step.effect == node.value or not self._fits(node, step):
                continue
            twin = (step.effect, step.end_s, tuple((g.column, g.value, g.version, g.exists) for g in step.guards))
            if twin not in twins:
                twins.add(twin)
                now_s = max(node.now_s, step.invoked_s)
                taken = _Node(node.low, node.taken, node.used | 1 << at, step.effect, now_s, node.value)
                found.append((step.version, taken))
        found += [
            (self._steps[at].version, self._take(node, at)) for at in reversed(open_steps) if self._fits(node, self._steps[at])
        ]
        found.sort(key=lambda one: one[0], reverse=True)
        return [next_node for _, next_node in found]

    def _fits(self, node: _Node, step: _Step) -> bool:
        """The step is content, and an unknown write right before it was not in vain."""
        if not self._holds(step, node.value):
            return False
        return node.before is _NOTHING or step.effect is KEEP or not self._holds(step, node.before)

    def _take(self, node: _Node, at: int) -> _Node:
        step = self._steps[at]
        value, before = node.value, node.before
        if step.effect is not KEEP:
            value, before = step.effect, _NOTHING
        elif before is not _NOTHING and not self._holds(step, before):
            before = _NOTHING
        low, taken = node.low, node.taken | 1 << (at - node.low)
        while taken & 1:
            low, taken = low + 1, taken >> 1
        return _Node(low, taken, node.used, value, max(node.now_s, step.invoked_s), before)

    def _holds(self, step: _Step, value: Any) -> bool:
        if step.told is not KEEP:
            return bool(step.told == value)
        if not step.guards:
            return True
        verdicts = [self._guard(guard, value) for guard in step.guards]
        if step.refused:
            return not all(verdict is True for verdict in verdicts)
        return all(verdict is not False for verdict in verdicts)

    def _guard(self, guard: Condition, value: Any) -> bool | None:
        """None: the history does not show it."""
        if guard.exists is not None:
            return (value is not None) == guard.exists
        if guard.version is not None:
            write = self._table.by_value.get(value) if self._table.use.unique else None
            if value is None:
                return False
            if write is None or not write.version or write.lost:  # an earlier attempt at a lost one has a version of its own
                return None
            return write.version == guard.version
        if guard.column == self._table.use.value and guard.op == "=":
            return bool(guard.value == value)
        return None
