"""Web tools: search, reading pages, and a browser."""

from satchel.tools.web.addresses import AddressRules as AddressRules
from satchel.tools.web.browser import browser_tool as browser_tool
from satchel.tools.web.chromium import find_chromium as find_chromium
from satchel.tools.web.chromium import has_playwright as has_playwright
from satchel.tools.web.engines import Engine as Engine
from satchel.tools.web.engines import Found as Found
from satchel.tools.web.engines import Usability as Usability
from satchel.tools.web.engines import usable_engines as usable_engines
from satchel.tools.web.fetch import WEB_FETCH as WEB_FETCH
from satchel.tools.web.fetch import fetch_tool as fetch_tool
from satchel.tools.web.fetching import Fetcher as Fetcher
from satchel.tools.web.gateway import Spawn as Spawn
from satchel.tools.web.search import search_tool as search_tool
