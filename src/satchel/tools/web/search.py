"""The tool `web_search`: uses the first search engine that answers."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from satchel.errors import SatchelError
from satchel.tools.display import Display, Line, ShownResult, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Tool, ToolContext, ToolResult
from satchel.tools.web.engines import Engine
from satchel.tools.web.fetch import READS_THE_WEB, short_address
from satchel.wording import counted, one_line

_MOST_TEXT_CHARS = 500
_SHOWN_RESULTS = 5
_DESCRIPTION = """Search the web. Returns titles, addresses and a few lines; web_fetch reads a page."""


def search_tool(engines: Sequence[Engine]) -> Tool:
    """Make the tool. If an engine fails, the next one is used."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        query = " ".join(input["query"].split())
        if not query:
            return ToolResult(text="Say what to search for.", is_error=True)
        failures: list[str] = []
        for engine in engines:
            await context.progress({"status": "searching", "engine": engine.name})
            try:
                found = await engine.search(query, limit=input.get("limit", 8), blocking=context.blocking)
            except SatchelError as error:
                failures.append(f"{engine.name}: {error}")
                continue
            await context.progress({"status": "found", "engine": engine.name, "count": len(found)})
            rows = [
                f"{number}. {hit.title or '(no title)'}\n   {hit.url}\n   {hit.text[:_MOST_TEXT_CHARS]}".rstrip()
                for number, hit in enumerate(found, start=1)
            ]
            text = "\n".join(rows) or f"{engine.name} found nothing for {query!r}."
            return ToolResult(
                text="\n".join([text, *(f"[{failure}]" for failure in failures)]),
                data=[{"url": hit.url, "title": hit.title, "text": hit.text} for hit in found],
                untrusted=True,
            )
        return ToolResult(text="No engine answered. " + " ".join(failures), is_error=True)

    return function_tool(
        call,
        name="web_search",
        description=_DESCRIPTION,
        properties={
            "query": {
                "type": "string",
                "maxLength": 1000,
            },
            "limit": {"type": "integer", "minimum": 1, "maximum": 20},
        },
        required=["query"],
        annotations=READS_THE_WEB,
        timeout_s=60.0,
    )


def _show(_input: Mapping[str, Any], text: str) -> ShownResult:
    found = re.findall(r"^\d+\. (.*)\n   (\S+)", text, re.MULTILINE)
    if not found:
        return ShownResult(summary=one_line(text))
    lines = [
        Line(text=f"{one_line(title, 60)} · {short_address(url)}") for title, url in found[:_SHOWN_RESULTS]
    ]
    if len(found) > _SHOWN_RESULTS:
        lines.append(Line(text=f"… {len(found) - _SHOWN_RESULTS} more"))
    return ShownResult(summary=counted(len(found), "result"), lines=tuple(lines))


DISPLAY: Final = Display(call=fields("query"), result=_show, kind="search")
