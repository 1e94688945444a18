"""Parses a page in a separate process, because a hostile page can crash a parser or keep it busy forever.

As a program, it reads a line of JSON (`url`, `status`, `kind`, `charset`, `is_cut`) and then the body from stdin, and
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
from satchel.tools.web.fetching import FetchedPage
from satchel.tools.web.reading import PageContent, read_page

_MOST_MEMORY_BYTES = 2_000_000_000
_MOST_CHARS = 5_000_000
"""The most text of a page: 250 results, more than any model reads."""
_MOST_OUTPUT_BYTES = 64_000_000
"""A character takes at most 12 bytes as JSON, and only the first half of the output is kept without gaps."""


async def read_apart(page: FetchedPage, *, environ: Mapping[str, str], timeout_s: float) -> PageContent:
    """Extract the text of a page.

    Raises:
        UsageError: It has no text, can't be parsed, or takes too long.
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
    return PageContent(title=found["title"], text=found["text"])


def _main() -> None:
    # macOS defines the limit but rejects it.
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_AS, (_MOST_MEMORY_BYTES, _MOST_MEMORY_BYTES))
    head = json.loads(sys.stdin.buffer.readline())
    page = FetchedPage(body=sys.stdin.buffer.read(), **head)
    try:
        reading = read_page(page)
        found = {"title": reading.title[:500], "text": reading.text[:_MOST_CHARS]}
    except SatchelError as error:
        found = {"error": str(error)}
    # A boundary: a parser may raise anything for a hostile page.
    except Exception as error:  # noqa: BLE001
        found = {"error": f"{page.url} could not be read: {type(error).__name__}: {str(error)[:300]}"}
    sys.stdout.write(json.dumps(found))


if __name__ == "__main__":
    _main()
