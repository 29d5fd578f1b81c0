"""The prose check names fragments, words and wide lines, and lets sentences, code, tables and addresses pass."""

from __future__ import annotations

import pytest

from tools.prose_check import WIDTH, fragments, prose_riddles, riddles, wide_lines


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
    assert list(riddles("a.py", 'told = 1  # mend\nx = "amended, retold, intelligible, `told`: a name"\n')) == []


@pytest.mark.parametrize(
    "text", ["the log goes on", "Told by the register", "a table of\n  which nothing is known", "| a | nobody can tell |"],
)
def test_a_word_of_a_document_is_named_with_its_line(text: str) -> None:
    found = list(prose_riddles("a.md", f"# A\n\n{text}\n"))
    assert len(found) == 1
    assert found[0].startswith("a.md:3 ")
    assert ": write " in found[0]


def test_code_and_parts_of_words_are_no_prose() -> None:
    assert list(prose_riddles("a.md", "The rule `mended` is amended.\n\n```\ntold\n```\n")) == []


def test_a_wide_line_is_named_with_its_length() -> None:
    assert list(wide_lines("a.md", f"{'a' * WIDTH}\n\n- {'b' * WIDTH}\n")) == [
        f"a.md:3 {WIDTH + 2} characters: break the line at {WIDTH}"
    ]


def test_tables_code_and_addresses_may_be_wide() -> None:
    wide = "a" * WIDTH
    assert list(wide_lines("a.md", f"| {wide} |\n\n```sh\necho {wide}\n```\n\n[a page]({wide})\n")) == []
