"""The tool `browser`: for pages that need scripts, forms or clicks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

import anyio

from satchel.errors import UsageError
from satchel.tools.display import Display, fields
from satchel.tools.function import function_tool
from satchel.tools.port import Annotations, Effect, Tool, ToolContext, ToolResult
from satchel.tools.web.addresses import AddressRules
from satchel.tools.web.chromium import Chromium
from satchel.tools.web.gateway import Spawn

_STATE = "browser"
_SHOWN_CHARS = 20_000
"""The most characters of one result: below the default of `[agent] max_result_chars`."""
_NEEDS = {"open": ("url",), "click": ("ref",), "type": ("ref", "text"), "select": ("ref", "text")}
_STATUS = {
    "open": "opening the page",
    "read": "reading the page",
    "click": "clicking",
    "type": "typing",
    "select": "selecting",
    "screenshot": "taking a screenshot",
    "back": "going back",
}
"""The progress message of each action."""
_DESCRIPTION = """Use a web browser, for pages that need scripts, clicks or forms; web_fetch is quicker for reading. \
`open` goes to a url. All actions except screenshot and close return the page as a list of its elements, in which \
`[ref=e5]` is the reference for `click`, `type` (replaces a field's text; end it with a line break to press Enter) and \
`select` (chooses an entry by its label). References are valid until the page changes; `read` returns new ones. `back` \
returns to the previous page, `screenshot` saves a picture, `close` ends the browser and discards its logins."""
DISPLAY: Final = Display(
    call=fields("action", "url", "ref", "text"), kind="fetch", question="Use the browser?"
)


def browser_tool(rules: AddressRules, *, executable: str, spawn: Spawn) -> Tool:
    """Make the tool. The first `open` starts the browser, which runs until the session is closed."""

    async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        action = input["action"]
        missing = [name for name in _NEEDS.get(action, ()) if name not in input]
        if missing:
            raise UsageError(f"{action} needs {' and '.join(missing)}.")
        chromium: Chromium | None = context.state.get(_STATE)
        if chromium is not None and (action == "close" or not chromium.is_alive):
            del context.state[_STATE]
            await chromium.aclose()
            chromium = None
        if action == "close":
            return ToolResult(text="The browser is closed.")
        if action == "open":
            # Check first, so that no browser is started for nothing.
            await rules.check(input["url"])
            if chromium is None:
                await context.progress({"status": "starting the browser"})
                chromium = context.state[_STATE] = await Chromium.start(
                    rules, executable=executable, environ=context.environ, spawn=spawn
                )
        if chromium is None:
            raise UsageError("No page is open. Open one with its url.")
        await context.progress({"status": _STATUS[action]})
        return await _act(chromium, action, input, context)

    return function_tool(
        call,
        name="browser",
        description=_DESCRIPTION,
        properties={
            "action": {
                "type": "string",
                "enum": ["open", "read", "click", "type", "select", "screenshot", "back", "close"],
            },
            "url": {"type": "string", "description": "For open."},
            "ref": {
                "type": "string",
                "pattern": r"^(f\d{1,6})?e\d{1,9}$",
                "description": "For click, type and select; such as e5.",
            },
            "text": {"type": "string", "description": "For type and select."},
            "offset": {"type": "integer", "minimum": 0, "description": "For read: characters to skip."},
        },
        required=["action"],
        # Not read-only: submitting a form changes something somewhere.
        annotations=Annotations(read_only=False, destructive=True, idempotent=False, open_world=True),
        effects=lambda _input, _context: [Effect(resource="browser", writes=True)],
        timeout_s=60.0,
        is_deferred=True,
    )


async def _act(chromium: Chromium, action: str, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
    match action:
        case "open":
            text = await chromium.open(input["url"])
        case "click":
            text = await chromium.click(input["ref"])
        case "type":
            text = await chromium.type(input["ref"], input["text"])
        case "select":
            text = await chromium.select(input["ref"], input["text"])
        case "back":
            text = await chromium.back()
        case "screenshot":
            number = 1
            while await anyio.Path(context.spill_dir / f"browser-{number}.png").exists():
                number += 1
            path = context.spill_dir / f"browser-{number}.png"
            await chromium.screenshot(path)
            return ToolResult(text=f"Saved to {path}", data={"path": str(path)})
        case _:
            text = await chromium.read()
    offset = input.get("offset", 0) if action == "read" else 0
    shown = text[offset : offset + _SHOWN_CHARS]
    end = offset + len(shown)
    if end < len(text):
        # Truncate here rather than in the loop: what the loop saves to a file is no longer marked as untrusted.
        shown += f"\n[{end:,} of {len(text):,} characters; to continue, read with offset={end}]"
    return ToolResult(text=shown, untrusted=True)
