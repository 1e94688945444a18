"""Web tools: search, reading pages, and a browser."""

from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.browser import browser_tool
from satchel.tools.web.chromium import find_chromium, has_playwright
from satchel.tools.web.engines import Engine, Found, Usability, usable_engines
from satchel.tools.web.fetch import WEB_FETCH, fetch_tool
from satchel.tools.web.fetching import Fetcher
from satchel.tools.web.gateway import Spawn
from satchel.tools.web.search import search_tool

__all__ = [
    "WEB_FETCH",
    "AddressRules",
    "Engine",
    "Fetcher",
    "Found",
    "Spawn",
    "Usability",
    "browser_tool",
    "fetch_tool",
    "find_chromium",
    "has_playwright",
    "search_tool",
    "usable_engines",
]
