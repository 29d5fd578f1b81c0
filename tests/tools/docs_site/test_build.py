"""The documentation site: every page is in its navigation, each link leads somewhere, and nothing comes from another server."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path, PurePosixPath

import markdown
import pytest
from markdown_it import MarkdownIt

from tests.needs import need_package
from tools.docs_site.__main__ import build, strict
from tools.docs_site.lists import for_mkdocs
from tools.docs_site.pages import OF_THE_ROOT, on_the_site
from tools.sources import ROOT, repository_files
from twinlog.cli.main import all_verbs
from twinlog.errors import TwinlogError

NAV = (ROOT / "mkdocs.yml").read_text(encoding="utf-8").split("\nnav:\n")[1].split("\nnot_in_nav:")[0]
PAGES = [path for path in repository_files(ROOT, ".md") if path.parts[0] == "docs" or str(path) in OF_THE_ROOT]
EXTENSIONS = ["attr_list", "tables", "pymdownx.highlight", "pymdownx.superfences"]  # of mkdocs.yml: those that make blocks
BLOCKS = {"ol", "ul", "li", "pre", "table", "blockquote", *(f"h{level}" for level in range(1, 6))}
LOADED = {"src", "srcset", "poster", "data"}


class Loaded(HTMLParser):
    """The addresses that a browser loads to show a page: not those where its links lead."""

    def __init__(self) -> None:
        super().__init__()
        self.addresses: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        names = LOADED | ({"href"} if tag == "link" and given.get("rel") != "canonical" else set())
        self.addresses += [str(given[name]) for name in names & set(given)]


class Shape(HTMLParser):
    """The blocks of a page, and where lists and their items end: what is inside what."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.feed(html)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags += [tag] * (tag in BLOCKS)

    def handle_endtag(self, tag: str) -> None:
        self.tags += [f"/{tag}"] * (tag in ("ol", "ul", "li"))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    need_package("mkdocs", "docs")
    folder = tmp_path_factory.mktemp("docs")
    assert build(folder) == 0
    return folder / "site"


def test_every_page_of_docs_is_in_the_navigation() -> None:
    """It needs no MkDocs: whoever adds a page sees at once which one is missing, and where."""
    in_nav = set(re.findall(r": ([\w./-]+\.md)$", NAV, re.MULTILINE))
    pages = {str(path.relative_to("docs")) for path in repository_files(ROOT, ".md") if path.parts[0] == "docs"}
    wanted = {page for page in pages if not page.startswith("decisions/2")} | set(OF_THE_ROOT.values())
    assert {f"docs/{page}" for page in wanted - in_nav} == set(), "add these pages to `nav` of mkdocs.yml"
    gone = {page for page in in_nav - wanted if not page.startswith("reference/")}
    assert gone == set(), "`nav` names pages that are not there"


def test_every_link_and_entry_of_the_strict_build_is_right(site: Path) -> None:
    pages = {str(path.relative_to(site)) for path in site.rglob("*.html")}
    assert pages > {"index.html", "quick-start.html", "operations.html", "decisions/index.html", "reference/http.html"}
    assert (site / "page" / "switchover.png").is_file()


@pytest.mark.parametrize("page", PAGES, ids=str)
def test_a_page_has_the_same_blocks_on_the_site_as_on_a_forge(page: Path) -> None:
    """A list behind a line of text was running text, and nested steps of the runbook were counted on as steps of their own."""
    text = (ROOT / page).read_text(encoding="utf-8")
    made = Shape(markdown.markdown(for_mkdocs(text), extensions=EXTENSIONS))
    assert made.tags == Shape(MarkdownIt("commonmark").enable("table").render(text)).tags


def test_a_list_is_moved_and_nothing_else_changes() -> None:
    text = "Said:\n- one\n  more\n   - inner\n\n     ```\n       x\n     ```\n- two\n\n```\n- no list\n  - at all\n```\n"
    moved = "Said:\n\n- one\n    more\n    - inner\n\n        ```\n          x\n        ```\n\n- two\n"
    moved += "\n```\n- no list\n  - at all\n```\n"
    assert for_mkdocs(text) == moved


def test_a_search_finds_the_handbook_before_the_decisions(site: Path) -> None:
    found = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))["docs"]
    boosts = {one["location"]: one.get("boost", 1) for one in found if "#" not in one["location"]}
    later = {page for page, boost in boosts.items() if boost < 1}
    assert later > {"guards.html", "track-record.html", "changelog.html"}
    assert [page for page in boosts if page.startswith("decisions/") and page not in later] == []
    assert "operations.html" not in later


def test_no_page_loads_anything_from_elsewhere(site: Path) -> None:
    found = {}
    for page in site.rglob("*.html"):
        parser = Loaded()
        parser.feed(page.read_text(encoding="utf-8"))
        found[page.name] = [address for address in parser.addresses if re.match(r"(?:https?:)?//", address)]
        assert len(parser.addresses) > 3
    assert {page: addresses for page, addresses in found.items() if addresses} == {}
    assert "unpkg" not in "".join(sheet.read_text(encoding="utf-8") for sheet in site.rglob("*.css"))


def test_the_references_have_every_verb_path_and_error(site: Path) -> None:
    commands = (site / "reference" / "commands.html").read_text(encoding="utf-8")
    assert [verb for verb in all_verbs() if f'id="{verb}"' not in commands] == []
    paths = (site / "reference" / "http.html").read_text(encoding="utf-8")
    assert {name for name in ("putRow", "scanRows", "startOperation", "takeBarrier") if f'id="{name}"' not in paths} == set()
    errors = (site / "reference" / "errors.html").read_text(encoding="utf-8")
    kinds = [kind for kind in TwinlogError.__subclasses__() if kind.__module__ == TwinlogError.__module__]  # tests make more
    assert len(kinds) > 10
    assert [kind.code for kind in kinds if f"<code>{kind.code}</code>" not in errors] == []
    client = (site / "reference" / "client.html").read_text(encoding="utf-8")
    for name in ("put", "scan", "receipt", "take_barrier"):
        assert f'id="twinlog.client.Client.{name}"' in client


@pytest.mark.parametrize(("page", "nav", "said"), [
    ("[one](README.md) of [two](two.md#two)", "two.md", ""),
    ("[gone](two.md#no-such-heading)", "two.md", "no-such-heading"),
    ("[gone](no-such-page.md)", "two.md", "no-such-page.md"),
    ("Two is not in the navigation.", "", "two.md"),
    ("Three is not there.", "three.md", "three.md"),
])
def test_the_build_fails_for_what_is_wrong(tmp_path: Path, page: str, nav: str, said: str) -> None:
    """The settings of the site, over two pages. MkDocs' option --quiet was seen to hide warnings from its strict mode."""
    need_package("mkdocs", "docs")
    pages, config = tmp_path / "pages", tmp_path / "mkdocs.yml"
    pages.mkdir()
    (pages / "site.css").touch()
    (pages / "README.md").write_text(f"# One\n\n{page}\n")
    (pages / "two.md").write_text("# Two\n")
    entries = "".join(f"  - {name}\n" for name in ("README.md", nav) if name)
    config.write_text((ROOT / "mkdocs.yml").read_text(encoding="utf-8").replace(NAV, entries.rstrip("\n")))
    done = strict(pages, tmp_path / "site", config)
    assert (done.returncode, said in done.stderr) == (1 if said else 0, True), done.stderr


def test_a_link_out_of_the_site_becomes_its_text_and_a_wrong_one_stays() -> None:
    code = "\n```\n[f](../Makefile)\n```\n"
    text = "[a](../README.md#tests) [b](../Makefile) [c](deploy/kubernetes) [d](gone.md) ![e](write-path.svg)" + code
    shown = "[a](overview.md#tests) b c [d](gone.md) ![e](write-path.svg)" + code
    assert on_the_site(text, PurePosixPath("docs/api.md")) == shown
    assert on_the_site("[a](docs/api.md)", PurePosixPath("README.md")) == "[a](api.md)"
    assert on_the_site("[a](../../CHANGELOG.md)", PurePosixPath("docs/decisions/README.md")) == "[a](../changelog.md)"
