"""Text that zstd makes smaller by a fifth only: for tests that need a log, or a disk, to grow by what they write."""

from __future__ import annotations

import random
import string

_LETTERS = [letter for letter in string.digits + string.ascii_letters + string.punctuation if letter not in "\"\\"]


def noise(size: int, seed: int = 0) -> str:
    """`size` printable characters, the same for the same seed; one byte each, also in JSON."""
    return "".join(random.Random(seed).choices(_LETTERS, k=size))
