"""`/memories/page`: the page that stands before a model in every session, edited by hand, with its versions; with
`project`, that of a project.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Final
from urllib.parse import quote

from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import NotFound, UsageError
from satchel.memory import PageVersion
from satchel.memory.show.page.editing import as_text, difference
from satchel.memory.store.page_lines import SECTIONS
from satchel.runtime.lines import version_words
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_AT: Final = "/memories/page"
_MOST_VERSIONS: Final = 30


def _at(project: str, way: str = "") -> str:
    return f"{_AT}{way}?project={quote(project)}" if project else f"{_AT}{way}"


@dataclass(frozen=True, slots=True)
class _Row:
    """A version, and what it changed in the one before."""

    version: PageVersion
    words: str
    changes: list[str]


@router.get(_AT)
async def show(request: Request, service: Serves, project: str = "") -> Response:
    """The page, its text to edit, and its versions."""
    return await _shown(request, service, project)


async def _shown(
    request: Request,
    service: Service,
    project: str,
    *,
    text: str | None = None,
    base: str = "",
    problem: str = "",
) -> Response:
    memory, budget = await service.memory_named(project), service.satchel.settings.memory.page_tokens
    found = await memory.page(budget_tokens=budget, proposed=True)
    versions = await memory.page_versions(limit=_MOST_VERSIONS + 1)
    newest = versions[0] if versions else None
    older: list[PageVersion | None] = [*versions[1:], None]
    return await page(
        request,
        "standing-page.html",
        title="The page of the project" if project else "The page about you",
        current="/projects" if project else "/memories",
        at=partial(_at, project),
        project=service.satchel.home.projects.find(project) if project else None,
        status=422 if problem else 200,
        found=found,
        budget=budget,
        sections=SECTIONS,
        text=text if text is not None else (as_text(newest.lines) if newest else "# Who the user is\n"),
        base=base or str(newest.number if newest else 0),
        problem=problem,
        rows=[
            _Row(version, version_words(version), difference(before, version))
            for version, before in zip(versions, older, strict=False)
        ][:_MOST_VERSIONS],
    )


@router.post(_AT)
async def edit(request: Request, service: Serves, project: str = "") -> Response:
    """Take the text as it was edited."""
    memory = await service.memory_named(project)
    form = await form_of(request)
    text, base = form.get("text"), form.get("base")
    try:
        version = await memory.edit_page(text, base=int(base) if base.isdecimal() else None)
    except (UsageError, NotFound) as error:
        return await _shown(request, service, project, text=text, base=base, problem=str(error))
    return see_other(request, _at(project), say=Saying(text=f"Saved as version {version.number}."))


@router.post(f"{_AT}/accept")
async def accept(request: Request, service: Serves, project: str = "") -> Response:
    """Let models see a page that was proposed."""
    await form_of(request)
    await (await service.memory_named(project)).accept_page()
    return see_other(
        request, _at(project), say=Saying(text="Models see the page from the next conversation on.")
    )


@router.post(f"{_AT}/restore")
async def restore(request: Request, service: Serves, project: str = "") -> Response:
    """Make an earlier version the page again."""
    form = await form_of(request)
    number = form.get("number")
    memory = await service.memory_named(project)
    version = await memory.restore_page(int(number) if number.isdecimal() else None)
    return see_other(
        request, _at(project), say=Saying(text=f"The page is as it was: version {version.number}.")
    )
