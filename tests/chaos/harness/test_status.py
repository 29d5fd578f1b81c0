"""A site's word of itself is compared with the epochs that had opened before it was asked."""

from __future__ import annotations

from chaos.harness.status import Said, check
from chaos.history.history import Opened

OPENED = (Opened("a", 1, 1.0, "sync"), Opened("b", 2, 5.0, "async"))


def test_a_site_that_says_it_serves_after_a_later_opening_is_found_once() -> None:
    found = [*check([Said("a", 4.9, 1), Said("a", 5.2, 1), Said("a", 5.7, 1), Said("b", 6.0, 2)], OPENED)]
    assert [violation.sentence for violation in found] == [
        "Site a says at 5.200 s that it serves in epoch 1, and site b had opened epoch 2 before.",
    ]


def test_a_word_that_was_asked_for_before_the_opening_is_no_lie() -> None:
    assert not [*check([Said("a", 5.0, 1)], OPENED)]
