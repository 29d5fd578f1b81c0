"""Serves the tests of the page in a real browser: the addresses of a pair, what no page may do, and clients that write."""

from __future__ import annotations

import json
import threading

import httpx
from axe_playwright_python.sync_playwright import Axe
from playwright.sync_api import Page

from bench.pair import Pair
from tools.sources import ROOT
from twinlog import Client

SHOTS = ROOT / "out" / "page"
SIZES = {320: 800, 1920: 1080, 3840: 2160}
WAIT_MS = 60_000
LINES = """() => {
  const faults = [], spans = ["#text", "CODE", "B", "I", "A", "SPAN", "SMALL"];
  for (const one of document.querySelectorAll("main :is(p, li, dd, td, h1, h2, label)")) {
    const parts = [...one.childNodes].filter((node) => spans.includes(node.nodeName));
    const text = parts.map((node) => node.textContent).join("").trim();
    if (text.length < 25 || !one.checkVisibility()) continue;
    const range = document.createRange();
    range.selectNodeContents(one);
    const lines = new Set([...range.getClientRects()].map((line) => Math.round(line.bottom / 8))).size;
    const letters = text.length / Math.max(1, lines);
    const isBad = letters > 120 || (one.tagName === "TD" && letters < 8);
    if (isBad) faults.push(`${Math.round(letters)} letters a line: ${text.slice(0, 60)}`);
  }
  for (const node of document.querySelectorAll("svg.path .node")) {
    const box = node.querySelector("rect").getBBox();
    for (const text of node.querySelectorAll("text")) {
      const said = text.getBBox();
      if (said.x + said.width > box.x + box.width) faults.push(`out of its box: ${text.textContent}`);
    }
  }
  for (const value of document.querySelectorAll(".tile .value")) {
    if (value.scrollWidth > value.clientWidth) faults.push(`out of its tile: ${value.textContent.trim()}`);
  }
  return faults;
}"""
# Whatever goes up or down without being touched, but for the words of the first line, and what stands at the end of a page.
WATCH_MOVES = """() => {
  window.moves = [];
  new PerformanceObserver((list) => {
    for (const entry of list.getEntries()) {
      if (entry.hadRecentInput) continue;
      for (const { node, previousRect: was, currentRect: is } of entry.sources) {
        const one = node === null ? null : node.nodeType === 1 ? node : node.parentElement;
        if (Math.abs(was.y - is.y) < 1 || was.height === 0 || is.height === 0) continue;
        if (one === null || one.closest("[data-region=verdict], [data-region=past], [data-region=reasons], footer")) continue;
        window.moves.push(`${one.tagName}.${one.className.baseVal ?? one.className} ${one.textContent.trim().slice(0, 30)}: `
          + `${was.x},${was.y} ${was.width}x${was.height} -> ${is.x},${is.y} ${is.width}x${is.height}`);
      }
    }
  }).observe({ type: "layout-shift", buffered: true });
}"""


def urls_of(pair: Pair) -> dict[str, str]:
    return {site: entry["url"] for site, entry in json.loads(pair.note.read_text())["sites"].items()}


def url_of(pair: Pair, of: str) -> str:
    return str(urls_of(pair)[of])


def active_url(pair: Pair) -> str:
    answer = httpx.get(f"{url_of(pair, 'a')}/v1/cluster", timeout=30, trust_env=False).json()
    return str(answer["active"]["url"])


def site_of(pair: Pair, url: str) -> str:
    return next(site for site, its in urls_of(pair).items() if its == url)


def address_of(pair: Pair) -> str:
    return f"twinlog://demo?a={url_of(pair, 'a')}&b={url_of(pair, 'b')}"


def shot(page: Page, name: str) -> None:
    SHOTS.mkdir(parents=True, exist_ok=True)
    page.screenshot(path=SHOTS / f"{name}.png", full_page=True)


def axe_faults(page: Page) -> list[str]:
    found = Axe().run(page).response["violations"]
    return [f"{one['id']}: {node['target']} {node.get('failureSummary', '')}" for one in found for node in one["nodes"]]


class Load:
    """Clients that write all the time; `count` acknowledged, `failed`: what a client saw fail."""

    def __init__(self, address: str) -> None:
        self.count, self.failed = 0, list[str]()
        self._address, self._over = address, threading.Event()
        self._threads = [threading.Thread(target=self._write, args=(number,)) for number in range(4)]

    def _write(self, number: int) -> None:
        with Client(self._address) as client:
            while not self._over.is_set():
                try:
                    client.put("orders", f"{number}-{self.count % 100}", {"note": "x"})
                    self.count += 1
                except Exception as error:
                    self.failed.append(repr(error))

    def __enter__(self) -> Load:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()
