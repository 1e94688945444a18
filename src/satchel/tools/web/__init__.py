"""The web: searching it, reading its pages, and a browser."""

from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.engines import Usability, usable_engines
from satchel.tools.web.fetch import fetch_tool
from satchel.tools.web.fetching import Fetcher
from satchel.tools.web.search import search_tool

__all__ = ["AddressRules", "Fetcher", "Usability", "fetch_tool", "search_tool", "usable_engines"]
