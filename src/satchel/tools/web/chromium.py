"""Controls the user's Chromium through Playwright. Each session has its own browser with one context."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import anyio

from satchel.config.home import expanded
from satchel.errors import SatchelError, UsageError
from satchel.tools.kept import write_kept
from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.gateway import USER, Gateway, Spawn

if TYPE_CHECKING:
    from playwright.async_api import Browser, BrowserContext, Locator, Page, Playwright, Request

_NAMES = ("chromium", "chromium-browser", "google-chrome")
_QUIET = (
    "--disable-gpu",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-quic",
    # Otherwise a page could send UDP packets that bypass the gateway.
    "--force-webrtc-ip-handling-policy=disable_non_proxied_udp",
)
_GOTO_MS = 25_000
_ACT_MS = 5_000
_SETTLE_MS = 5_000
_STIR_S = 0.3
"""How long to wait after a click for a navigation to begin, because a script's handler may run first."""
_CLOSE_S = 10.0


@cache
def has_playwright() -> bool:
    """Whether the Python package is installed. It is not imported to find out. Looking takes 0.4 ms: once a process."""
    return find_spec("playwright") is not None


def find_chromium(configured: str, environ: Mapping[str, str]) -> str | None:
    """The browser to start. `configured` is `[web] chromium`; "" searches the PATH.

    Returns:
        Its path, or None if there is none.
    """
    path = environ.get("PATH", "")
    if configured:
        return shutil.which(expanded(configured, environ.get("HOME", "")), path=path)
    return next((found for name in _NAMES if (found := shutil.which(name, path=path))), None)


class Chromium:
    """A running browser; started by `start`, ended by `aclose`."""

    def __init__(self, rules: AddressRules) -> None:
        """Use `start`."""
        self._rules = rules
        self._gateway = Gateway(rules)
        self._playwright: Playwright | None = None
        self._browser: Browser | None = None
        self._context: BrowserContext | None = None
        self._failed_page: Page | None = None

    @classmethod
    async def start(
        cls, rules: AddressRules, *, executable: str, environ: Mapping[str, str], spawn: Spawn
    ) -> Chromium:
        """Start the browser. `spawn` runs its gateway.

        Raises:
            SatchelError: It can't be started; the message quotes its error.
        """
        chromium = cls(rules)
        try:
            await chromium._start(executable, environ, spawn)
        except BaseException:
            await chromium.aclose()
            raise
        return chromium

    async def _start(self, executable: str, environ: Mapping[str, str], spawn: Spawn) -> None:
        # Imported on demand: it takes 0.3 s and is an optional dependency.
        from playwright.async_api import Error, async_playwright  # noqa: PLC0415

        await self._gateway.open(spawn)
        self._playwright = await async_playwright().start()
        try:
            self._browser = await self._playwright.chromium.launch(
                executable_path=executable,
                args=list(_QUIET),
                # As root, Chromium does not start with its sandbox.
                chromium_sandbox=os.geteuid() != 0,
                env=dict(environ),
                # By default, Chromium bypasses proxies for loopback addresses; "<-loopback>" turns that off.
                proxy={
                    "server": self._gateway.url,
                    "bypass": "<-loopback>",
                    "username": USER,
                    "password": self._gateway.password,
                },
                handle_sigint=False,
                handle_sigterm=False,
                handle_sighup=False,
            )
            self._context = await self._browser.new_context(accept_downloads=False, service_workers="block")
        except Error as error:
            raise SatchelError(f"{executable} could not be started: {_first_line(error)}") from error

    @property
    def is_alive(self) -> bool:
        """Whether it is still running: the user, or a signal to the terminal, may have ended it."""
        return self._browser is not None and self._browser.is_connected()

    async def aclose(self) -> None:
        """End the browser, its driver and its gateway. May be called twice."""
        browser, playwright = self._browser, self._playwright
        self._browser = self._playwright = self._context = self._failed_page = None
        with anyio.CancelScope(shield=True):
            for part in (browser.close if browser else None, playwright.stop if playwright else None):
                if part is None:
                    continue
                with anyio.move_on_after(_CLOSE_S):
                    # A boundary: what is closed here may have crashed already, with any exception.
                    with suppress(Exception):
                        await part()
            await self._gateway.aclose()

    # Actions

    async def open(self, url: str) -> str:
        """Go to a page and read it.

        Raises:
            Refused, UsageError: It can't be reached, or is not allowed.
        """
        await self._rules.check(url)
        context = self._living()
        page = await self._page_to_use(context)
        self._gateway.refused.clear()
        async with self._told(page):
            self._failed_page = page
            await page.goto(url.strip(), wait_until="domcontentloaded", timeout=_GOTO_MS)
            self._failed_page = None
            await _settle(page)
        return await self.read()

    async def read(self) -> str:
        """The page as an accessibility snapshot, in which every interactive element has a reference."""
        # Already imported with the browser.
        from playwright.async_api import Error  # noqa: PLC0415

        page = self._page()
        async with self._told(page):
            try:
                text = await _snapshot(page)
            except Error:
                # The page was replaced while it was being read.
                await _settle(page)
                text = await _snapshot(page)
        self._check_place(page)
        return text

    async def click(self, ref: str) -> str:
        """Click an element and read the resulting page."""
        page = self._page()
        async with self._told(page, ref), self._stirred(page):
            await (await _element(page, ref)).click(timeout=_ACT_MS)
        return await self.read()

    async def type(self, ref: str, text: str) -> str:
        """Replace the text in a field; a line break at the end of `text` presses Enter."""
        page = self._page()
        async with self._told(page, ref), self._stirred(page):
            element = await _element(page, ref)
            await element.fill(text.removesuffix("\n"), timeout=_ACT_MS)
            if text.endswith("\n"):
                await element.press("Enter", timeout=_ACT_MS)
        return await self.read()

    async def select(self, ref: str, text: str) -> str:
        """Choose an entry of a list by its label."""
        page = self._page()
        async with self._told(page, ref), self._stirred(page):
            await (await _element(page, ref)).select_option(label=text, timeout=_ACT_MS)
        return await self.read()

    async def back(self) -> str:
        """Go to the previous page."""
        page = self._page()
        async with self._told(page):
            if await page.go_back(wait_until="domcontentloaded", timeout=_GOTO_MS) is None:
                raise UsageError("There is no previous page.")
            await _settle(page)
        return await self.read()

    async def screenshot(self, path: Path) -> None:
        """Save the visible part of the page as PNG."""
        page = self._page()
        async with self._told(page):
            picture = await page.screenshot(timeout=_ACT_MS)
        write_kept(path, picture)

    # Internals

    def _living(self) -> BrowserContext:
        if self._context is None or not self.is_alive:
            raise UsageError("The browser is no longer running. Open a page again.")
        return self._context

    async def _page_to_use(self, context: BrowserContext) -> Page:
        """The newest page, or a new one after a failed load: the browser may still be retrying the old one."""
        failed, self._failed_page = self._failed_page, None
        if failed is not None or not context.pages:
            page = await context.new_page()
            if failed is not None:
                # A boundary: it may have crashed already, with any exception.
                with suppress(Exception):
                    await failed.close()
            return page
        return context.pages[-1]

    def _page(self) -> Page:
        """The newest page: after a click opened a page, that one is meant."""
        pages = self._living().pages
        if not pages:
            raise UsageError("No page is open. Open one with its url.")
        return pages[-1]

    def _check_place(self, page: Page) -> None:
        refused = self._gateway.refused
        # If a secure connection was refused, the browser shows its own error page.
        reason = (
            " ".join(refused.values()) if page.url.startswith("chrome-error:") else refused.get(page.url, "")
        )
        if reason:
            raise UsageError(f"The page led to an address that the browser may not use: {reason}")

    @asynccontextmanager
    async def _told(self, page: Page, ref: str = "") -> AsyncIterator[None]:
        """Turn the browser's errors into `UsageError`s that quote them and what the gateway refused."""
        from playwright.async_api import Error, TimeoutError  # noqa: PLC0415

        try:
            yield
        except TimeoutError as error:
            if ref:
                raise UsageError(
                    f"{ref} could not be used within {_ACT_MS // 1000} s: it is hidden, disabled, or covered. "
                    "Read the page again."
                ) from error
            raise UsageError(f"{page.url} did not answer in time.") from error
        except Error as error:
            why = " ".join([_first_line(error), *self._gateway.refused.values()])
            raise UsageError(f"The browser reports: {why}") from error

    @asynccontextmanager
    async def _stirred(self, page: Page) -> AsyncIterator[None]:
        """Wait for a navigation, if the action starts one."""
        self._gateway.refused.clear()
        moved = anyio.Event()

        def notice(request: Request) -> None:
            if request.is_navigation_request():
                moved.set()

        context = page.context
        count = len(context.pages)
        context.on("request", notice)
        try:
            yield
            with anyio.move_on_after(_STIR_S):
                await moved.wait()
        finally:
            context.remove_listener("request", notice)
        if moved.is_set() or len(context.pages) != count:
            await _settle(context.pages[-1])


async def _element(page: Page, ref: str) -> Locator:
    element = page.locator(f"aria-ref={ref}")
    if not await element.count():
        raise UsageError(
            f"There is no {ref} on the page now. Read the page again for its current references."
        )
    return element


async def _snapshot(page: Page) -> str:
    title = " ".join((await page.title()).split())[:300]
    snapshot = await page.locator("body").aria_snapshot(mode="ai", timeout=_ACT_MS)
    return f"Title: {title}\nURL: {page.url}\n\n{snapshot}"


async def _settle(page: Page) -> None:
    """Wait until the page is loaded, with a limit: some pages never finish."""
    from playwright.async_api import TimeoutError  # noqa: PLC0415

    try:
        await page.wait_for_load_state("load", timeout=_SETTLE_MS)
    except TimeoutError:
        return


def _first_line(error: Exception) -> str:
    return str(error).strip().split("\n", 1)[0][:300]
