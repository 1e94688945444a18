"""Extracts readable text from a page's bytes."""

from __future__ import annotations

import codecs
import io
from dataclasses import dataclass

from satchel.errors import UsageError
from satchel.tools.web.fetching import FetchedPage
from satchel.wording import install_extra

_MOST_PDF_PAGES = 500
_TEXT_KINDS = (
    "application/json",
    "application/xml",
    "application/javascript",
    "application/x-ndjson",
    "image/svg+xml",
)
_NO_CHARSETS = frozenset({"idna", "punycode", "raw-unicode-escape", "undefined", "unicode-escape", "utf-7"})
"""Python codecs that no page uses. Decoding punycode takes time quadratic in the length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PageContent:
    """The content of a page; `title` may be ""."""

    title: str
    text: str


def needs_parser(page: FetchedPage) -> bool:
    """Whether a parser has to read it; a hostile page can keep a parser busy forever."""
    return _is_pdf(page) or _is_html(page)


def read_page(page: FetchedPage) -> PageContent:
    """Extract the text of a page. This blocks: don't call it on the event loop.

    Raises:
        UsageError: It is of a kind without text, it can't be parsed, or the extra `web` is missing.
    """
    if _is_pdf(page):
        return _pdf(page)
    if _is_html(page):
        return _html(page)
    if page.kind.startswith("text/") or page.kind in _TEXT_KINDS or page.kind.endswith(("+json", "+xml")):
        return PageContent(title="", text=_decode(page))
    if not page.kind and b"\0" not in page.body[:4000]:
        return PageContent(title="", text=_decode(page))
    raise UsageError(
        f"{page.url} is {page.kind or 'binary data'} of {len(page.body):,} bytes: it has no text to read."
    )


def _is_pdf(page: FetchedPage) -> bool:
    return page.body.startswith(b"%PDF-")


def _is_html(page: FetchedPage) -> bool:
    if page.kind:
        return page.kind in ("text/html", "application/xhtml+xml")
    return b"<html" in page.body[:2000].lower()


def _decode(page: FetchedPage) -> str:
    if page.charset:
        try:
            name = codecs.lookup(page.charset).name
            if name.replace("_", "-") not in _NO_CHARSETS:
                return page.body.decode(name, "replace")
        except (LookupError, ValueError):
            pass  # not an encoding: detect it from the bytes
    try:
        return page.body.decode("utf-8")
    except UnicodeDecodeError:
        # Imported on demand, only if the simple methods fail.
        from charset_normalizer import from_bytes  # noqa: PLC0415

        best = from_bytes(page.body[:100_000]).best()
        return page.body.decode(best.encoding if best is not None else "latin-1", "replace")


def _html(page: FetchedPage) -> PageContent:
    try:
        # Imported on demand: 150 ms with lxml.
        import trafilatura  # noqa: PLC0415
    except ImportError as error:
        raise _lacks_extra(page, "pages") from error

    html = _decode(page)
    text = trafilatura.extract(
        html,
        url=page.url,
        output_format="markdown",
        include_links=True,
        include_tables=True,
        favor_recall=True,
    )
    title = trafilatura.extract_metadata(html, default_url=page.url).title or ""
    if not text:
        # Forms and short pages contain no article. Then all visible text is used.
        text = trafilatura.html2txt(html)
    if not text.strip():
        raise UsageError(
            f"{page.url} shows no text without its scripts. Use the browser tool, if it is available."
        )
    return PageContent(title=title, text=text)


def _pdf(page: FetchedPage) -> PageContent:
    try:
        # Imported on demand.
        from pypdf import PdfReader  # noqa: PLC0415
        from pypdf.errors import PyPdfError  # noqa: PLC0415
    except ImportError as error:
        raise _lacks_extra(page, "PDFs") from error

    if page.is_cut:
        raise UsageError(f"{page.url} is a PDF of more than {len(page.body):,} bytes: too long to be read.")
    try:
        reader = PdfReader(io.BytesIO(page.body))
        pages = [p.extract_text() for p in reader.pages[:_MOST_PDF_PAGES]]
        title = str(reader.metadata.title or "") if reader.metadata is not None else ""
    except (PyPdfError, ValueError, KeyError, RecursionError) as error:
        raise UsageError(f"{page.url} is a PDF that can't be read: {error}.") from error
    text = "\n\n".join(
        f"[page {number}]\n{text.strip()}" for number, text in enumerate(pages, start=1) if text.strip()
    )
    if not text:
        raise UsageError(f"{page.url} is a PDF without text; its pages are pictures.")
    return PageContent(title=title, text=text)


def _lacks_extra(page: FetchedPage, kind: str) -> UsageError:
    return UsageError(
        f"{page.url} can't be read: a package that reads {kind} is missing. Type: {install_extra('web')}"
    )
