"""`python -m bench.ui.views`: how long each view of the page takes on a pair with many tables and operations.

A demo pair with `--tables` tables and `--operations` operations in the journal of each site. Per view and round: the time until
the whole answer has come over a connection that is open, the CPU of the gateway's process by the kernel's count, and in a
browser that knows nothing yet (Chromium, a fresh profile each time) the times from the navigation to the first paint with
content and to the end of the event `load`. Rounds are interleaved. At the end, site b is stopped, as by a hang, and each view
is loaded once more: by then no page has been open for so long that the gateway has forgotten the pair.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import httpx
from playwright.sync_api import Browser, sync_playwright

from bench.measure import spread
from bench.pair import BenchError, Pair
from bench.ui.filling import make_operations, make_tables, table_name
from gateway.ui.watch import NEEDED_S

VIEWS = {
    "Now": "/ui", "Change": "/ui/change", "Change, a switchover": "/ui/change?kind=switchover", "History": "/ui/history",
    "Tables": "/ui/tables", "Tables, the last page": "/ui/tables?page={pages}", "Tables, by name": "/ui/tables?name=99",
    "a table": f"/ui/tables/{table_name(0)}", "Audits": "/ui/audits", "Log": "/ui/log",
}
_PAGES = 1_000_000  # the gateway shows the last one
_TIMES = """new Promise((done) => {
  const look = () => {
    const painted = performance.getEntriesByName("first-contentful-paint")[0];
    const loaded = performance.getEntriesByType("navigation")[0].loadEventEnd;
    if (painted !== undefined && loaded > 0) done([painted.startTime, loaded]); else setTimeout(look, 10);
  };
  look();
})"""
_TIMEOUT_S = 30.0


class Taken(NamedTuple):
    """One round of one view, in milliseconds; `size` in bytes."""

    size: int
    answer: float
    cpu: float
    painted: float
    loaded: float


def at_the_server(http: httpx.Client, pid: int, path: str) -> tuple[int, float, float]:
    """(bytes of the page, ms until it had come, ms of CPU of the gateway)."""
    cpu_ms, begun_s = _cpu_ms(pid), time.perf_counter()
    answer = http.get(path)
    took_ms = (time.perf_counter() - begun_s) * 1000
    if answer.status_code not in (200, 409):  # 409: the other site hangs, and a change cannot be checked
        raise BenchError(f"{path} was answered {answer.status_code}: {answer.text[:500]}")
    return len(answer.content), took_ms, _cpu_ms(pid) - cpu_ms


def in_the_browser(browser: Browser, url: str) -> tuple[float, float]:
    """(ms to the first paint with content, ms to the end of `load`)."""
    context = browser.new_context(viewport={"width": 1440, "height": 900})
    try:
        page = context.new_page()
        page.goto(url, wait_until="load", timeout=_TIMEOUT_S * 1000)
        painted, loaded = page.evaluate(_TIMES)
    finally:
        context.close()
    return float(painted), float(loaded)


def _cpu_ms(pid: int) -> float:
    """By the scheduler, to the nanosecond: ticks of 10 ms are too coarse for one page."""
    return sum(int(path.read_text().split()[0]) for path in Path(f"/proc/{pid}/task").glob("*/schedstat")) / 1e6


def measured(pair: Pair, browser: Browser, rounds: int) -> dict[str, list[Taken]]:
    base = f"http://{pair.host}:{pair.port}"
    found: dict[str, list[Taken]] = {name: [] for name in VIEWS}
    with httpx.Client(base_url=base, timeout=_TIMEOUT_S, trust_env=False, headers={"accept": "text/html"}) as http:
        for number in range(rounds):
            for name in VIEWS if number % 2 else reversed(VIEWS):
                path = VIEWS[name].format(pages=_PAGES)
                answered = at_the_server(http, pair.pids["a"], path)
                found[name].append(Taken(*answered, *in_the_browser(browser, base + path)))
    return found


def while_the_other_hangs(pair: Pair, browser: Browser) -> dict[str, Taken]:
    """One load of each view, the first ones after nobody has looked."""
    base = f"http://{pair.host}:{pair.port}"
    found = {}
    os.kill(pair.pids["b"], signal.SIGSTOP)
    try:
        time.sleep(NEEDED_S + 5.0)
        with httpx.Client(base_url=base, timeout=_TIMEOUT_S, trust_env=False, headers={"accept": "text/html"}) as http:
            for name, path in VIEWS.items():
                answered = at_the_server(http, pair.pids["a"], path.format(pages=_PAGES))
                found[name] = Taken(*answered, *in_the_browser(browser, base + path.format(pages=_PAGES)))
    finally:
        os.kill(pair.pids["b"], signal.SIGCONT)
    return found


def table(found: Mapping[str, list[Taken]], hung: Mapping[str, Taken]) -> str:
    lines = [
        "| view | bytes | answered in, ms | of it CPU, ms | first paint, ms | `load`, ms | while the other site hangs, ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, rounds in found.items():
        cells = [_words([one[place] for one in rounds]) for place in (1, 2, 3, 4)]
        last = f"{hung[name].answer:,.0f}" if name in hung else ""
        lines.append(f"| {name} | {rounds[-1].size:,} | {' | '.join(cells)} | {last} |")
    return "\n".join(lines)


def _words(values: list[float]) -> str:
    found = spread(values)
    assert found is not None, "no round"
    return f"{found['median']:.0f} ({found['low']:.0f} to {found['high']:.0f})"


def _note(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.ui.views", description=__doc__)
    parser.add_argument("--tables", type=int, default=10_000)
    parser.add_argument("--operations", type=int, default=100_000)
    parser.add_argument("--rounds", type=int, default=7)
    chosen = parser.parse_args()
    chromium = shutil.which("chromium")
    if chromium is None:
        print("bench: there is no program chromium: install it", file=sys.stderr)
        return 1
    try:
        with tempfile.TemporaryDirectory(prefix="twinlog-page-") as folder, Pair(Path(folder) / "demo") as pair:
            make_operations(pair, chosen.operations, _note)
            make_tables(pair, chosen.tables, _note)
            with sync_playwright() as playwright:
                browser = playwright.chromium.launch(
                    executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"]
                )
                measured(pair, browser, 1)  # code and files are warm
                found = measured(pair, browser, chosen.rounds)
                hung = while_the_other_hangs(pair, browser)
                browser.close()
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(f"{chosen.tables:,} tables, {chosen.operations:,} operations at each site: median (lowest to highest) of the rounds")
    print(table(found, hung))
    print(f"load average of the machine at the end: {os.getloadavg()[0]:.1f}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
