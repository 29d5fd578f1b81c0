"""The newest word of everything that a site depends on, and of its own background work: when it answered, when it failed, why.

What always holds: an error is shown only while it is the newest word of its subject; the next success takes it away.
This module is pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import msgspec

from twinlog.errors import TwinlogError


class Word(msgspec.Struct, frozen=True):
    """Moments are monotonic seconds of the site's clock; None: never. `error`: why it failed, until it answers again."""

    answered_s: float | None = None
    failed_s: float | None = None
    error: str | None = None


SILENT = Word()


class Words:
    """Keeps a word for each subject, in the order in which the subjects first spoke."""

    def __init__(self) -> None:
        self._words: dict[str, Word] = {}

    def answered(self, subject: str, now_s: float) -> None:
        self._words[subject] = Word(now_s, self.of(subject).failed_s)

    def failed(self, subject: str, now_s: float, error: TwinlogError | str) -> None:
        said = error.message if isinstance(error, TwinlogError) else error
        self._words[subject] = Word(self.of(subject).answered_s, now_s, said)

    def said(self, subject: str, now_s: float, error: str | None) -> None:
        """It failed with `error`, or it answered."""
        if error is None:
            self.answered(subject, now_s)
        else:
            self.failed(subject, now_s, error)

    def of(self, subject: str) -> Word:
        return self._words.get(subject, SILENT)

    def all(self) -> Mapping[str, Word]:
        return self._words

    def copy(self) -> Words:
        copied = Words()
        copied._words = dict(self._words)
        return copied

    def errors(self) -> Iterator[tuple[str, str]]:
        """Yields each subject whose newest word is an error, with that error."""
        for subject, word in self._words.items():
            if word.error is not None:
                yield subject, word.error
