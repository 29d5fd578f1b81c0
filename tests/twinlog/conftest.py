"""Both distributions, built once for the tests of this folder."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import pytest

from tools.packaging.wheels import build_all, commit_time_s


class Built(NamedTuple):
    """The wheel and the source archive of twinlog, and those of twinlog-server."""

    app: Path
    app_source: Path
    server: Path
    server_source: Path


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Built:
    return Built(*build_all(tmp_path_factory.mktemp("wheels"), commit_time_s()))
