"""The docstring check names fragments, and lets sentences pass."""

from __future__ import annotations

import pytest

from tools.docstring_check import fragments, riddles


@pytest.mark.parametrize("first", ["What is missing.", "Whether it holds.", "Of two, the later.", "How, and when."])
def test_a_fragment_is_named_with_its_line(first: str) -> None:
    source = f'import x\n\n\nclass A:\n    def f(self):\n        """{first}\n\n        More."""\n'
    assert list(fragments("a.py", source)) == [f"a.py:6 {first}"]


def test_sentences_and_absent_docstrings_pass() -> None:
    source = '"""Rows and their bytes."""\ndef f():\n    """Returns what is missing."""\ndef g(): ...\nclass A:\n    x = 1\n'
    assert list(fragments("a.py", source)) == []


@pytest.mark.parametrize("text", ["the log goes on", "it told site b", "a table of\n which nothing is known", "mend that DFS"])
def test_a_word_that_is_not_the_fields_is_named_with_what_to_write(text: str) -> None:
    found = list(riddles("a.py", f'x = 1\ny = f"""{text} {{x}}"""\n'))
    assert len(found) == 1
    assert found[0].startswith("a.py:2 ")
    assert ": write " in found[0]


def test_names_comments_and_parts_of_words_are_no_text() -> None:
    assert list(riddles("a.py", 'told = 1  # mend\nx = "amended, retold, intelligible"\n')) == []
