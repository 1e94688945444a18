"""Reads a page in a process of its own: a page that keeps its parser busy for ever, or breaks it, ends with it.

As a program it reads a line of JSON (`url`, `status`, `kind`, `charset`, `is_cut`) and then the body on stdin, and
prints JSON: `title` and `text`, or `error`.
"""

from __future__ import annotations

import contextlib
import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path

from satchel.errors import SatchelError, UsageError
from satchel.sandbox.process import run_process
from satchel.tools.web.fetching import Page
from satchel.tools.web.reading import Reading, read_page

__all__ = ["read_apart"]

_MOST_MEMORY_BYTES = 2_000_000_000
_MOST_CHARS = 5_000_000
"""Of a page's text: 250 pages of results; nobody reads on that far."""
_MOST_OUTPUT_BYTES = 64_000_000
"""As JSON a character takes 12 bytes at most; the first half of the output is kept whole."""


async def read_apart(page: Page, *, environ: Mapping[str, str], timeout_s: float) -> Reading:
    """Make a page readable.

    Args:
        page: As it was fetched.
        environ: What the process gets.
        timeout_s: After that it is ended.

    Raises:
        UsageError: It has no text, can't be read, or takes too long to be.
    """
    head = {
        "url": page.url,
        "status": page.status,
        "kind": page.kind,
        "charset": page.charset,
        "is_cut": page.is_cut,
    }
    result = await run_process(
        [sys.executable, "-I", "-m", "satchel.tools.web.reader"],
        cwd=Path("/"),
        environ=environ,
        stdin=json.dumps(head).encode() + b"\n" + page.body,
        timeout_s=timeout_s,
        max_output_bytes=2 * _MOST_OUTPUT_BYTES,
        grace_s=0.2,
    )
    if result.timed_out:
        raise UsageError(f"{page.url} could not be read within {timeout_s:g} s.")
    try:
        found = json.loads(result.stdout.text)
    except ValueError:
        raise UsageError(
            f"{page.url} could not be read: the parser ended with exit code {result.exit_code}."
        ) from None
    if "error" in found:
        raise UsageError(found["error"])
    return Reading(title=found["title"], text=found["text"])


def _main() -> None:
    # macOS knows the limit and does not take it.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    head = json.loads(sys.stdin.buffer.readline())
    page = Page(body=sys.stdin.buffer.read(), **head)
    try:
        reading = read_page(page)
        found = {"title": reading.title[:500], "text": reading.text[:_MOST_CHARS]}
    except SatchelError as error:
        found = {"error": str(error)}
    # A boundary: what a parser raises at a hostile page is no one's to foresee.
    except Exception as error:  # noqa: BLE001
        found = {"error": f"{page.url} could not be read: {type(error).__name__}: {str(error)[:300]}"}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _main()
