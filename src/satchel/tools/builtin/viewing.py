"""What `file_read` makes of files that are more than text: pictures, documents and notebooks."""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from functools import partial
from typing import Any, Final

from satchel.messages import IMAGES, FileBlock
from satchel.sandbox.port import Sandbox
from satchel.tools.documents.texts import text_of_document
from satchel.tools.kept import keep, media_type_of
from satchel.tools.port import ToolContext
from satchel.wording import cut_text

MOST_PICTURE: Final = 15 << 20
"""Bytes of a picture that is kept; what a model may be sent of it is less."""
_MOST_PDF: Final = 3_000_000
"""Bytes of a PDF that a model is shown as it is; a longer one is read as text."""
_MOST_PDF_PAGES: Final = 20
"""Anthropic's documentation gives 1,500 to 3,000 tokens a page, so these stay below 60,000."""
_MOST_PICTURES: Final = 20
"""Of one notebook."""
_MOST_OUTPUT: Final = 4_000
"""Characters of one output of a cell."""


def is_picture(head: bytes) -> bool:
    """Whether a file that begins so is a picture."""
    return media_type_of(head).startswith("image/")


class DocumentReader:
    """Reads documents of a session. The text of the newest one is kept, so that its next lines are not parsed again."""

    _KEY: Final = "file_read.document"

    def __init__(self, context: ToolContext, sandbox: Callable[[], Awaitable[Sandbox]]) -> None:
        """Take the call's context, and what gives the sandbox in which parsers run."""
        self._context = context
        self._sandbox = sandbox

    async def read(self, content: bytes, kind: str, name: str) -> tuple[str, int]:
        """The text of a document with its headings and pages, and the number of its pages; 0 if it has none.

        Raises:
            UsageError: It can't be read; says why.
            NoText: See there.
            SandboxError: The sandbox failed.
        """
        digest = hashlib.sha256(content).hexdigest()
        known = self._context.state.get(self._KEY)
        if known is not None and known[0] == digest:
            return str(known[1]), int(known[2])
        text, pages = await text_of_document(content, kind, name, self._context.spill_dir, self._sandbox)
        self._context.state[self._KEY] = (digest, text, pages)
        return text, pages

    async def shown(self, content: bytes, name: str, text: str, pages: int) -> FileBlock | None:
        """Keep a PDF for a model to see, with the text for one that can't; None if it is too long for that."""
        if len(content) > _MOST_PDF or pages > _MOST_PDF_PAGES:
            return None
        return await self._context.blocking(partial(keep, text=text), self._context.spill_dir, name, content)


def notebook_text(raw: bytes) -> tuple[str, Mapping[str, bytes]] | None:
    """The cells of a Jupyter notebook as text, and the pictures of its outputs by name; None if it is none.

    Its format is nbformat 4.
    """
    try:
        notebook = json.loads(raw)
        cells = notebook["cells"]
        language = str(notebook.get("metadata", {}).get("language_info", {}).get("name") or "code")
        pictures: dict[str, bytes] = {}
        lines = [
            f"[notebook of {len(cells)} cells; not the file's JSON, and its lines are not those of the file]"
        ]
        for number, cell in enumerate(cells, 1):
            kind = str(cell["cell_type"])
            lines.append(f"[cell {number}, {language if kind == 'code' else kind}]")
            lines += _joined(cell.get("source", "")).splitlines()
            for output in cell.get("outputs", ()):
                lines += _output(output, number, pictures)
        return "\n".join(lines) + "\n", pictures
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _joined(source: Any) -> str:
    return source if isinstance(source, str) else "".join(map(str, source))


def _output(output: Mapping[str, Any], cell: int, pictures: dict[str, bytes]) -> Iterator[str]:
    data = output.get("data", {})
    for media_type in sorted(IMAGES & data.keys()):
        name = f"cell-{cell}-{len(pictures) + 1}.{media_type.partition('/')[2]}"
        try:
            content = base64.b64decode(_joined(data[media_type]))
        except binascii.Error:
            continue
        if len(pictures) < _MOST_PICTURES and is_picture(content):
            pictures[name] = content
            yield f"[output: the picture {name}]"
    error = "\n".join(map(str, output.get("traceback", ()))) or ": ".join(
        str(output[key]) for key in ("ename", "evalue") if output.get(key)
    )
    text = _joined(output.get("text") or data.get("text/plain") or "") or error
    if text:
        yield "[output]"
        yield from cut_text(text, _MOST_OUTPUT).splitlines()
