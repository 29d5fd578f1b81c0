"""`make docs`: builds the documentation site into build/docs/site, and fails when a link or an entry of the navigation is wrong.

What always holds: the build asks no network, nor does a page that is shown; MkDocs runs in strict mode, so that every warning
is a failure. It runs in a process of its own, because its plugins are no part of what the gates check.
"""

from __future__ import annotations

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

from tools.docs_site.pages import assemble
from tools.sources import ROOT

BUILD = ROOT / "build" / "docs"


def build(into: Path = BUILD, root: Path = ROOT) -> int:
    """Builds the site of `root` into `into`/site. Returns 0, or what MkDocs ended with after it named what is wrong."""
    if find_spec("mkdocs") is None:
        sys.stderr.write("the package mkdocs is not installed: run `make setup`, or install the extra `docs`\n")
        return 2
    assemble(into / "pages", root)
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "TWINLOG_DOCS_PAGES": str(into / "pages"), "TWINLOG_SOURCES": str(root)}
    return subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(root / "mkdocs.yml"),
         "--site-dir", str(into / "site")],
        cwd=root, env=environment, check=False,
    ).returncode


def main() -> int:
    ended = build()
    if ended == 0:
        print(f"built: open {BUILD / 'site' / 'index.html'}, or serve it: python -m http.server --directory {BUILD / 'site'} 8000")
    return ended


if __name__ == "__main__":
    sys.exit(main())
