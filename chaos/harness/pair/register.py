"""The register of the pair as it changes: openings and modes, as lines of the history.

What always holds: every change is seen, because the table of changes is read (changes.py), not the value alone. A change
happened between two looks that were answered: an opening is noted with the later one and a mode with the earlier one, so that
neither makes an answer look wrong that was right. Where the database went back, or came back, the mode that it says now is
news, and an opening that was seen before is none.
"""

from __future__ import annotations

from collections.abc import Callable

from chaos.harness.pair.changes import Changes
from chaos.harness.pair.watching import Watching
from chaos.history.history import GivenUp, ModeRecorded, Opened
from chaos.history.lines import Line
from switchover.register.port import PairState
from twinlog.errors import Unavailable, words

POLL_S = 0.02


class RegisterWatch(Watching):
    """`note` takes the lines, in a thread of its own."""

    def __init__(self, changes: Changes, now_s: Callable[[], float], note: Callable[[Line], None]) -> None:
        self._changes, self._now_s, self._note = changes, now_s, note
        super().__init__()
        self._last_id = 0
        self._seen: dict[int, PairState] = {}  # the changes, by their ids
        self._value: PairState | None = None

    @property
    def value(self) -> PairState | None:
        return self._value

    def _run(self) -> None:
        before_s = self._now_s()
        while not self._ended.wait(POLL_S):
            looked_s = self._now_s()
            try:
                found = self._changes.since(self._last_id)
            except Unavailable:
                continue
            except Exception as error:  # whatever else it is, the run must not believe that nothing has changed since
                self.error = words(error)
                return
            now_s = self._now_s()
            for number, value in found:
                again = self._seen.get(number) == value
                for line in [ModeRecorded(value.epoch, value.mode, before_s)] if again else lines_of(
                    self._value, value, before_s, now_s
                ):
                    self._note(line)
                self._last_id, self._value, self._seen[number] = number, value, value
            before_s = looked_s

    def stop(self) -> None:
        self._ended.set()
        self._changes.give_up()
        super().stop()
        self._changes.close()


def lines_of(before: PairState | None, value: PairState, from_s: float, to_s: float) -> list[Line]:
    """Returns what a change of the register means; it happened between `from_s` and `to_s`."""
    opened = value.active is not None and (before is None or before.epoch != value.epoch)
    found: list[Line] = []
    if opened or (before is not None and before.mode != value.mode):
        found.append(ModeRecorded(value.epoch, value.mode, from_s))
    if not opened:
        return found
    found.append(Opened(str(value.active), value.epoch, to_s, value.mode))
    taken = before is not None and before.mode == "async" and before.active not in (None, value.active)
    if taken and before is not None and before.switching is not None and before.switching.kind == "takeover":
        found.append(GivenUp(before.epoch, to_s))
    return found
