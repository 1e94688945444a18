"""Search engines behind one interface, and which of them are available."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from typing import Any, Protocol
from urllib.parse import urlsplit

from satchel.errors import SatchelError, UsageError
from satchel.tools.port import Blocking
from satchel.wording import install_extra

BRAVE_KEY = "BRAVE_API_KEY"
TAVILY_KEY = "TAVILY_API_KEY"

_TIMEOUT_S = 15.0
_MOST_BYTES = 4_000_000
"""The largest answer that is read; 20 results take about 50 KB."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """One result: its address, title and snippet."""

    url: str
    title: str
    text: str


class Engine(Protocol):
    """Something that searches the web."""

    @property
    def name(self) -> str: ...  # noqa: D102

    async def search(self, query: str, *, limit: int, blocking: Blocking) -> Sequence[Found]:
        """The best results first, at most `limit`, which is from 1 to 20.

        Raises:
            SatchelError: The search failed; the message says why and who must act.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Usability:
    """Whether an engine is available. `engine` is None if not; `text` says why, or how the engine is reached."""

    name: str
    engine: Engine | None
    text: str


@cache
def _has_ddgs() -> bool:
    """Whether the package is installed. Not imported to find out, because the import starts threads."""
    return find_spec("ddgs") is not None


def usable_engines(
    *,
    searxng_url: str,
    secret: Callable[[str], str | None],
    wanted: str = "auto",
    others: Sequence[Usability] = (),
) -> tuple[Usability, ...]:
    """All engines in the order in which they are tried. Those of plugins, `others`, come first. `wanted` is the engine
    to use, or "auto".
    """
    found = (
        Usability(
            name="searxng",
            engine=searxng(searxng_url) if searxng_url else None,
            text=urlsplit(searxng_url).hostname or "its address is wrong"
            if searxng_url
            else "web.searxng_url is not set",
        ),
        *(
            Usability(
                name=name,
                engine=make(key) if (key := secret(variable)) else None,
                text=f"by {variable}" if key else f"{variable} is not set",
            )
            for name, variable, make in (("brave", BRAVE_KEY, brave), ("tavily", TAVILY_KEY, tavily))
        ),
        Usability(
            name="duckduckgo",
            engine=DuckDuckGo() if _has_ddgs() else None,
            text="without a key"
            if _has_ddgs()
            else f"its pages are read by a package; type: {install_extra('web')}",
        ),
    )
    return tuple(entry for entry in (*others, *found) if wanted in ("auto", entry.name))


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpEngine:
    """An engine that answers with JSON.

    Attributes:
        service: Its name for people.
        request: What is sent for a query and a limit, in httpx2's words.
        refused: Who must act if it is refused.
        inside: The field that holds the results' own object; "" if the answer is that object.
        text: The field with the snippet of a result.
    """

    service: str
    request: Callable[[str, int], Mapping[str, Any]]
    refused: str
    inside: str = ""
    text: str = "content"

    @property
    def name(self) -> str:
        """See `Engine`."""
        return self.service.lower()

    async def search(self, query: str, *, limit: int, blocking: Blocking) -> Sequence[Found]:
        """See `Engine`."""
        answer: Any = await self._answer(self.request(query, limit))
        if self.inside:
            answer = answer.get(self.inside)
        rows = answer.get("results") if isinstance(answer, dict) else []
        return _results(self.service, rows, text=self.text, limit=limit)

    async def _answer(self, request: Mapping[str, Any]) -> Mapping[str, Any]:
        # Imported on demand.
        import httpx2  # noqa: PLC0415

        try:
            async with (
                httpx2.AsyncClient(timeout=_TIMEOUT_S, trust_env=False) as client,
                client.stream(**request) as response,
            ):
                if response.status_code in (401, 403):
                    raise UsageError(self.refused)
                if response.status_code == 429:
                    raise SatchelError(
                        f"{self.service} rejected the request: too many requests, or the quota is used up."
                    )
                if response.status_code != 200:
                    raise SatchelError(f"{self.service} answered with status {response.status_code}.")
                content = bytearray()
                async for piece in response.aiter_bytes():
                    content += piece
                    if len(content) > _MOST_BYTES:
                        raise SatchelError(f"{self.service} answered with more than {_MOST_BYTES:,} bytes.")
            answer = json.loads(content)
        except (httpx2.HTTPError, httpx2.InvalidURL) as error:
            why = str(error) or type(error).__name__
            raise SatchelError(f"{self.service} could not be reached: {why}.") from error
        except (ValueError, RecursionError) as error:
            raise SatchelError(f"{self.service} did not answer with JSON.") from error
        if not isinstance(answer, dict):
            raise SatchelError(f"{self.service} answered with JSON of another form than its API has.")
        return answer


def searxng(url: str) -> Engine:
    """The user's SearXNG; its settings must list `json` among the search formats. The address may end in `/search`."""
    where = url.rstrip("/").removesuffix("/search") + "/search"
    return HttpEngine(
        service="SearXNG",
        request=lambda query, _: {"method": "GET", "url": where, "params": {"q": query, "format": "json"}},
        refused='SearXNG refused the request. Its settings.yml must list "json" in search.formats.',
    )


def brave(key: str, *, url: str = "https://api.search.brave.com/res/v1/web/search") -> Engine:
    """Brave's search API; `url` is where it is."""
    return HttpEngine(
        service="Brave",
        request=lambda query, limit: {
            "method": "GET",
            "url": url,
            # Brave accepts at most 400 characters and 50 words.
            "params": {"q": " ".join(query.split()[:50])[:400], "count": limit},
            "headers": {"X-Subscription-Token": key},
        },
        refused=f"Brave refused the key in {BRAVE_KEY}.",
        inside="web",
        text="description",
    )


def tavily(key: str, *, url: str = "https://api.tavily.com/search") -> Engine:
    """Tavily's search API; `url` is where it is."""
    return HttpEngine(
        service="Tavily",
        request=lambda query, limit: {
            "method": "POST",
            "url": url,
            "json": {"query": query[:400], "max_results": limit},
            "headers": {"Authorization": f"Bearer {key}"},
        },
        refused=f"Tavily refused the key in {TAVILY_KEY}.",
    )


class DuckDuckGo:
    """DuckDuckGo's pages, read by the library `ddgs`; no key is needed, but many requests in a row are rejected."""

    name: str = "duckduckgo"

    async def search(self, query: str, *, limit: int, blocking: Blocking) -> Sequence[Found]:
        """See `Engine`."""
        rows = await blocking(self._rows, query, limit)
        return _results("DuckDuckGo", rows, text="body", url="href", limit=limit)

    @staticmethod
    def _rows(query: str, limit: int) -> list[dict[str, Any]]:
        # Imported on demand: it brings a compiled HTTP client.
        from ddgs import DDGS  # noqa: PLC0415
        from ddgs.exceptions import DDGSException  # noqa: PLC0415

        try:
            return DDGS(timeout=int(_TIMEOUT_S)).text(query, max_results=limit, backend="duckduckgo")
        except DDGSException as error:
            if "no results" in str(error).lower():
                return []
            raise SatchelError(
                f"DuckDuckGo did not answer: {' '.join(str(error).split())[:300]}. Wait a minute, or set up another "
                "engine (web.searxng_url, BRAVE_API_KEY or TAVILY_API_KEY)."
            ) from error


def _results(engine: str, rows: Any, *, text: str, limit: int, url: str = "url") -> list[Found]:
    if not isinstance(rows, list):
        raise SatchelError(f"{engine} answered with JSON of another form than its API has.")
    return [
        Found(url=row[url], title=_line(row.get("title")), text=_line(row.get(text)))
        for row in rows
        if isinstance(row, dict) and isinstance(row.get(url), str)
    ][:limit]


def _line(value: Any) -> str:
    return " ".join(str(value or "").split())
