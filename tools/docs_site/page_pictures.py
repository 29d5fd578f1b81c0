"""`make pictures`: the pictures of the operator's page in docs/page/ that README and docs show, from a pair of this machine.

What always holds: what they show has happened: the flights were loaded, both sites were compared by Spark, and a site was
killed. It needs Chromium and Java 17. The picture of a switchover was taken by hand, in the moment between two of its steps,
and that of differences from rows that were spoilt.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from io import BytesIO
from pathlib import Path

from PIL import Image
from playwright.sync_api import Browser, Page, expect, sync_playwright

from bench.pair import TWINLOG, Pair
from twinlog import Client

PICTURES = Path("docs/page")
WIDTH, HEIGHT = 1120, 1000
COLOURS = 256
BY = {"LOGNAME": "ann"}  # whose commands they are
WAIT_MS = 180_000.0
ORDERS = {
    "columns": [{"name": "id", "type": "string"}, {"name": "item", "type": "string"}, {"name": "count", "type": "int32"}],
    "primary_key": ["id"],
}


def small(png: bytes) -> bytes:
    """The same picture with COLOURS colours at most: the rest is the smoothing of letters."""
    written = BytesIO()
    with Image.open(BytesIO(png)) as picture:
        found = picture.convert("RGB")
        palette = found.quantize(COLOURS, Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
        palette.save(written, "PNG", optimize=True)
    return written.getvalue()


def keep(page: Page, folder: Path, name: str) -> None:
    """Writes what the page shows, down to the end of what it has to say, or to HEIGHT."""
    end = page.locator("main").evaluate("main => Math.ceil(main.getBoundingClientRect().bottom)")
    data = small(page.screenshot(clip={"x": 0, "y": 0, "width": WIDTH, "height": min(end, HEIGHT)}))
    (folder / f"{name}.png").write_bytes(data)
    print(f"{folder / name}.png: {len(data) >> 10} KiB")


def fill(pair: Pair) -> None:
    """Two tables: one that is counted, and one that is estimated."""
    config = str(pair.note)
    subprocess.run([*TWINLOG, "load", "flights", "--config", config], check=True, stdout=subprocess.DEVNULL)
    pair.create_table("orders", ORDERS)
    with Client(config) as client:
        for number in range(240):
            client.put("orders", f"{number:05}", {"item": "a book", "count": number % 3 + 1})


def audits(pair: Pair, page: Page, url: str, folder: Path) -> None:
    """Compares both sites twice: the picture has the result of the first comparison while the second one runs."""
    command = [*TWINLOG, "audit", "run", "compare", "--config", str(pair.note), "--audits", str(pair.folder / "audits")]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, env=os.environ | BY)
    page.goto(f"{url}/ui/tables")
    keep(page, folder, "tables")
    page.goto(f"{url}/ui/audits")
    second = subprocess.Popen(command, stdout=subprocess.DEVNULL, env=os.environ | BY)
    try:
        expect(page.get_by_role("progressbar")).to_have_count(1, timeout=WAIT_MS)
        keep(page, folder, "audits")
    finally:
        second.wait()


def lost_site(pair: Pair, page: Page, url: str, folder: Path) -> None:
    page.goto(f"{url}/ui")
    expect(page.locator("[data-stream]")).to_have_text("live", timeout=WAIT_MS)
    os.kill(pair.pids["a"], signal.SIGKILL)
    expect(page.locator(".verdict:not([data-lost])")).to_contain_text("twinlog failover --to b", timeout=WAIT_MS)
    expect(page.locator(".verdict:not([data-lost])")).not_to_contain_text("it means something after", timeout=WAIT_MS)
    keep(page, folder, "lost-site")


def take(browser: Browser, folder: Path) -> None:
    with tempfile.TemporaryDirectory(prefix="twinlog-pictures-") as place, Pair(Path(place) / "demo") as pair:
        fill(pair)
        page = browser.new_page(viewport={"width": WIDTH, "height": HEIGHT})
        audits(pair, page, pair.url("a"), folder)
        lost_site(pair, page, pair.url("b"), folder)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser("tools.docs_site.page_pictures", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--out", type=Path, default=PICTURES)
    options = parser.parse_args(arguments)
    chromium = shutil.which("chromium")
    if chromium is None:
        print("chromium was not found: install it (Debian, Ubuntu: apt-get install chromium)", file=sys.stderr)
        return 2
    options.out.mkdir(parents=True, exist_ok=True)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-dev-shm-usage"])
        take(browser, options.out)
        browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
