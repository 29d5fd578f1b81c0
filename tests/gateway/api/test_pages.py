"""The pages for a browser: whole in themselves, and true to the OpenAPI document."""

from __future__ import annotations

from html import unescape
from html.parser import HTMLParser

import pytest

from tests.gateway.documented import document
from tests.gateway.door_client import DoorClient, problem

FETCHING = {"script", "link", "img", "iframe", "object", "embed", "video", "audio", "source", "base", "form", "svg"}
VOID = {"meta", "br"}


class _Page(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.links: list[str] = []
        self.ids: list[str] = []
        self.faults: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in FETCHING or any(name in ("src", "style", "srcset") or name.startswith("on") for name, _ in attrs):
            self.faults.append(self.get_starttag_text() or tag)
        self.links += [value or "" for name, value in attrs if name == "href"]
        self.ids += [value or "" for name, value in attrs if name == "id"]
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        if not self.open or self.open.pop() != tag:
            self.faults.append(f"</{tag}>")


@pytest.mark.parametrize("path", ["/", "/docs"])
async def test_a_page_needs_nothing_beside_it(door: DoorClient, path: str) -> None:
    answer = await door.http.get(path)
    assert answer.status_code == 200
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    assert "default-src 'none'" in answer.headers["content-security-policy"]
    page = _Page()
    page.feed(answer.text)
    page.close()
    assert (page.faults, page.open) == ([], [])
    assert "url(" not in answer.text
    assert "@import" not in answer.text
    for link in page.links:
        if link.startswith("#"):
            assert link[1:] in page.ids
        else:
            assert (await door.http.get(link)).status_code == 200, link
    assert (await door.http.head(path)).headers["content-type"] == answer.headers["content-type"]
    problem(await door.http.post(path), 405, "method-not-allowed")


async def test_the_first_page_says_which_site_this_is(plain: DoorClient) -> None:
    shown = unescape((await plain.http.get("/")).text)
    cluster = (await plain.http.get("/v1/cluster")).json()
    assert f"site {cluster['site']} of {cluster['pair']}" in shown
    assert cluster["role"] in shown


async def test_the_reference_has_every_path(plain: DoorClient) -> None:
    shown = (await plain.http.get("/docs")).text
    for methods in document()["paths"].values():
        for operation in methods.values():
            assert f'id="{operation["operationId"]}"' in shown
            assert operation["summary"] in unescape(shown)
