"""`make docs`: builds the documentation site into build/docs/site; fails when a link or an entry of the navigation is wrong.

What always holds: the build asks no network, nor does a page that is shown. MkDocs runs in strict mode, so that every warning
is a failure; its option --quiet would hide warnings from that mode. It runs in a process of its own.
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


def strict(pages: Path, into: Path, config: Path) -> subprocess.CompletedProcess[str]:
    """Runs MkDocs over the folder `pages`. It ends with 1 for any warning, and says on standard error what is wrong."""
    environment = os.environ | {"NO_MKDOCS_2_WARNING": "1", "TWINLOG_DOCS_PAGES": str(pages), "TWINLOG_SOURCES": str(ROOT)}
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--config-file", str(config), "--site-dir", str(into)]
    return subprocess.run(command, cwd=ROOT, env=environment, stderr=subprocess.PIPE, text=True, check=False)


def build(into: Path = BUILD) -> int:
    """Builds the site into `into`/site. Returns 0, or what MkDocs ended with after it named what is wrong."""
    if find_spec("mkdocs") is None:
        sys.stderr.write("the package mkdocs is not installed: run `make setup`, or install the extra `docs`\n")
        return 2
    assemble(into / "pages")
    done = strict(into / "pages", into / "site", ROOT / "mkdocs.yml")
    wrong = [line for line in done.stderr.splitlines() if not line.startswith("INFO")]
    sys.stderr.write("".join(f"{line}\n" for line in wrong))
    return done.returncode


def main() -> int:
    ended = build()
    if ended == 0:
        print(f"built {BUILD / 'site'}; to read it with its search: python -m http.server --directory {BUILD / 'site'} 8000")
    return ended


if __name__ == "__main__":
    sys.exit(main())
