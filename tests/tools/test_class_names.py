"""One thing for one word: no class name stands for two things in the product."""

from __future__ import annotations

import ast
from collections import defaultdict

from tools.prose_check import PRODUCT
from tools.sources import ROOT, repository_files


def test_no_class_name_stands_twice() -> None:
    places: defaultdict[str, list[str]] = defaultdict(list)
    for path in repository_files(ROOT, ".py"):
        if path.parts[0] in PRODUCT:
            for node in ast.walk(ast.parse((ROOT / path).read_text(encoding="utf-8"))):
                if isinstance(node, ast.ClassDef):
                    places[node.name].append(str(path))
    assert len(places) > 300
    assert {name: where for name, where in places.items() if len(where) > 1} == {}
