"""How heavy the pages are, and how soon they can be used, in a real Chromium on the sample data of the docs' pictures.

    python benchmarks/pages.py [--loads 5]

For each page, loaded with an empty cache: its requests and bytes as sent, and the time from the last byte of its HTML
until its scripts have run, so that the field, the buttons and the keys work (the end of `DOMContentLoaded`). The
baseline is the login page, which has one script. Needs the package playwright and Chromium.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import anyio
from playwright.async_api import Browser, async_playwright

from satchel.tools.web.chromium import find_chromium
from satchel.version import __version__

sys.path.insert(0, str(Path(__file__).parents[1]))
from docs.screenshots import SHOTS, Sample, sample

_LOADED = """() => {
  const [page] = performance.getEntriesByType("navigation");
  const sent = [page, ...performance.getEntriesByType("resource")];
  const bytes = sent.reduce((sum, one) => sum + one.transferSize, 0);
  return [sent.length, bytes, page.domContentLoadedEventEnd - page.responseEnd];
}"""


async def measure(there: Sample, browser: Browser, loads: int) -> dict[str, Any]:
    """What each page takes, by its name."""
    login = await browser.new_context()
    page = await login.new_page()
    await page.goto(there.link)
    state, here = await login.storage_state(), page.url.removesuffix("/")
    found = {}
    for shot in SHOTS:
        is_login = shot.path == "/login"
        path = shot.path.format(main=there.main, memory=there.memory)
        seen: list[Sequence[float]] = []
        for _ in range(loads):
            context = await browser.new_context(storage_state=None if is_login else state)
            page = await context.new_page()
            await page.goto((there.url if is_login else here) + path)
            seen.append(await page.evaluate(_LOADED))
            await context.close()
        requests, sent, _ = seen[-1]
        usable_ms = statistics.median(one[2] for one in seen)
        found[shot.name] = {
            "requests": requests,
            "kb": round(sent / 1024, 1),
            "usable_ms": round(usable_ms, 1),
        }
    return found


async def main(loads: int) -> None:
    """Measure, and print."""
    executable = find_chromium("", os.environ)
    if executable is None:
        sys.exit("Chromium is needed (apt-get install chromium).")
    with tempfile.TemporaryDirectory(prefix="satchel-") as folder:
        async with async_playwright() as playwright, sample(Path(folder)) as there:
            browser = await playwright.chromium.launch(executable_path=executable, args=["--no-sandbox"])
            found = await measure(there, browser, loads)
            versions = {"satchel": __version__, "chromium": browser.version}
            await browser.close()
    ratio = round(found["chat"]["usable_ms"] / found["login"]["usable_ms"], 2)
    print(json.dumps({"versions": versions, "pages": found, "chat_beside_login": ratio}, indent=1))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--loads", type=int, default=5)
    anyio.run(main, parser.parse_args().loads)
