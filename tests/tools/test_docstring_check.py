"""The docstring check names fragments, and lets sentences pass."""

from __future__ import annotations

import pytest

from tools.docstring_check import fragments


@pytest.mark.parametrize("first", ["What is missing.", "Whether it holds.", "Of two, the later.", "How, and when."])
def test_a_fragment_is_named_with_its_line(first: str) -> None:
    source = f'import x\n\n\nclass A:\n    def f(self):\n        """{first}\n\n        More."""\n'
    assert list(fragments("a.py", source)) == [f"a.py:6 {first}"]


def test_sentences_and_absent_docstrings_pass() -> None:
    source = '"""Rows and their bytes."""\ndef f():\n    """Returns what is missing."""\ndef g(): ...\nclass A:\n    x = 1\n'
    assert list(fragments("a.py", source)) == []
