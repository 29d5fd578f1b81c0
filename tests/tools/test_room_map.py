"""docs/rooms.md has every module of the product, with the first sentence of its docstring."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.room_map import PAGE, first_sentence, page, product


def test_the_page_is_drawn_from_the_docstrings() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(product()), "run: python -m tools.room_map"


def test_every_module_has_a_sentence() -> None:
    assert [str(path) for path, source in product().items() if not first_sentence(source)] == []


@pytest.mark.parametrize(("source", "sentence"), [
    ('"""Rows and their bytes. All pure."""', "Rows and their bytes"),
    ('"""Writes e.g. rows, in\nparts.\n\nMore."""', "Writes e.g. rows, in parts"),
    ("x = 1", ""),
])
def test_a_first_sentence(source: str, sentence: str) -> None:
    assert first_sentence(source) == sentence


def test_folders_come_in_the_order_of_the_layers() -> None:
    drawn = page({Path("storage/a.py"): '"""A | b."""', Path("gateway/x/__init__.py"): '"""X."""'})
    assert drawn.index("## gateway/x/") < drawn.index("## storage/")
    assert "| `storage/a.py` | A \\| b |" in drawn
