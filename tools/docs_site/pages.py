"""The pages of the documentation site, put together in a folder of the build: docs/, the pages of the root, the references.

What always holds: the repository's pages are plain Markdown that any forge shows. They are copied, and only two things change:
lists get the form that MkDocs reads (lists.py), and links that of the site: a link to a page of the root leads to its copy, and
a link to a file that the site does not have becomes its text. In a search, decisions and records stand behind the handbook.
The generated references are functions of the code; nobody writes them by hand, and none of them is committed.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath

from tools.docs_site import client_reference, command_reference, error_reference, http_reference
from tools.docs_site.lists import for_mkdocs
from tools.sources import ROOT, repository_files

# Pages outside docs/, and their names on the site. The front page is docs/README.md.
OF_THE_ROOT = {
    "README.md": "overview.md", "CHANGELOG.md": "changelog.md", "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security-policy.md",
}
_OF_THE_PAST = re.compile(r"decisions/|guards|track-record|rooms|CHANGELOG")
_LATER = "---\nsearch:\n  boost: 0.1\n---\n"  # what an operator searches for stands in the handbook
_FENCED = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?P<image>!?)\[(?P<text>[^\[\]]*)\]\((?P<to>[^()\s]+)\)")
_ELSEWHERE = re.compile(r"[a-z]+:|#")


def address_of(path: PurePosixPath, root: Path = ROOT) -> str | None:
    """Returns the name on the site of a file of the repository; None if the site does not have it."""
    if str(path) in OF_THE_ROOT:
        return OF_THE_ROOT[str(path)]
    inside = path.is_relative_to("docs") and (root / path).is_file()
    return str(path.relative_to("docs")) if inside else None


def on_the_site(text: str, path: PurePosixPath, root: Path = ROOT) -> str:
    """Returns the page `text` of the file `path`, with the links that it has on the site."""
    here = PurePosixPath(str(address_of(path, root))).parent

    def link(found: re.Match[str]) -> str:
        if _ELSEWHERE.match(found["to"]):
            return found[0]
        to, mark, anchor = found["to"].partition("#")
        named = PurePosixPath(os.path.normpath(path.parent / to))
        address = address_of(named, root)
        if address is None:  # what is nowhere stays as it is: the build reports it
            return found["text"] if (root / named).exists() else found[0]
        return f"{found['image']}[{found['text']}]({os.path.relpath(address, here)}{mark}{anchor})"

    return _outside_of_code(text, link)


def _outside_of_code(text: str, link: Callable[[re.Match[str]], str]) -> str:
    parts, begin = [], 0
    for fence in _FENCED.finditer(text):
        parts += [_LINK.sub(link, text[begin : fence.start()]), fence[0]]
        begin = fence.end()
    return "".join([*parts, _LINK.sub(link, text[begin:])])


def references() -> Iterator[tuple[str, str]]:
    """Yields the name and the text of each page that is made from the code."""
    document = http_reference.document()
    yield "reference/openapi.json", json.dumps(document, indent=1)
    yield "reference/http.md", http_reference.page(document)
    yield "reference/http-schemas.md", http_reference.schemas_page(document)
    yield "reference/commands.md", command_reference.page()
    yield "reference/client.md", client_reference.page()
    yield "reference/errors.md", error_reference.page()


def assemble(into: Path, root: Path = ROOT) -> None:
    """Writes everything that MkDocs reads into the folder `into`, which is made anew."""
    shutil.rmtree(into, ignore_errors=True)
    for path in map(PurePosixPath, repository_files(root)):
        address = address_of(path, root)
        if address is None:
            continue
        target = into / address
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix == ".md":
            page = for_mkdocs(on_the_site((root / path).read_text(encoding="utf-8"), path, root))
            target.write_text(f"{_LATER if _OF_THE_PAST.search(str(path)) else ''}{page}", encoding="utf-8")
        else:
            shutil.copyfile(root / path, target)
    shutil.copyfile(Path(__file__).parent / "site.css", into / "site.css")
    for name, text in references():
        (into / name).parent.mkdir(parents=True, exist_ok=True)
        (into / name).write_text(text, encoding="utf-8")
