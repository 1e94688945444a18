"""The frame of every page of a logged-in user: the navigation, the newest sessions, the cost.

To add a page: a router with `include_in_schema=False` in a module of this package, included in `server/app.py`; a
template that extends `layout.html`; and in the route::

    @router.get("/memories")
    async def memories(request: Request, service: Serves) -> Response:
        return await page(request, "memories.html", title="Memories", found=await service.memory.list())

and for a form, which contains `{{ ui.token(form_token) }}` after `{% import "ui.html" as ui %}`::

    @router.post("/memories/{id}/forget")
    async def forget(request: Request, service: Serves, id: str) -> Response:
        form = await form_of(request)
        receipt = await service.satchel.forget([id])
        return see_other(request, "/memories", say=Saying(text="Forgotten.", meta=receipt.id))

Every page works without a script. With one, `static/page.js` (in every page) fetches a link or form that has
`data-swap="#id"` and replaces the element with that id by the one in the answer, so no route of its own is needed. The
content security policy allows no inline script, `style` attribute or `<style>`: use classes, and attributes in SVG.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from itertools import groupby
from typing import Any, Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from satchel.clock import local_day
from satchel.errors import SatchelError
from satchel.runtime.elsewhere import OpenElsewhere
from satchel.runtime.lines import asks_user
from satchel.server.browser_access import BrowserAccess, browser_of
from satchel.server.pages.rendering import Saying, State, rendered
from satchel.server.rates import Rates, login_tries
from satchel.server.service import Service
from satchel.sessions import SessionInfo

_MOST_IN_RAIL: Final = 12
_MOST_BROWSERS: Final = 200
_MOST_SAYINGS: Final = 5


@dataclass(slots=True)
class PageState:
    """What the pages keep between requests.

    Attributes:
        access: Who is logged in.
        sayings: Messages for the next page of each browser, shown once.
        login_tries: How often each address may try a token.
        person: Whose pages they are, where several people share a server.
        has_passkeys: The front door of several people has a page for passkeys.
    """

    access: BrowserAccess
    sayings: OrderedDict[str, list[Saying]] = field(default_factory=OrderedDict)
    login_tries: Rates = field(default_factory=login_tries)
    person: str = ""
    has_passkeys: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class _Link:
    path: str
    words: str
    count: str = ""
    waits: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class RailSession:
    """A session in a list: `state` is "asks" if it waits for the user, "running" if it is at work, or None."""

    info: SessionInfo
    state: State | None

    @property
    def paths(self) -> list[str]:
        """The paths of its branches."""
        return [f"/chat/{id}" for id in self.info.branches or (self.info.id,)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    """The frame around a page."""

    links: Sequence[_Link]
    spaces: Sequence[str]
    groups: Sequence[tuple[str, Sequence[RailSession]]]
    sessions: int
    model: str
    spent_usd: float
    day_usd: float | None


async def page(
    request: Request, template: str, *, title: str, current: str = "", status: int = 200, **context: Any
) -> Response:
    """A whole page.

    Besides `context`, the template has `title`, `now` (the time, with its local offset), `around` (`Surroundings`),
    `sayings`, `theme`, `form_token` and `path`.

    Args:
        request: The request.
        template: The name of a file in `templates/` that extends `layout.html`.
        title: What the browser's tab says, and the heading unless the template has its own.
        current: The path of the navigation's entry that this page belongs to; "" finds it by the request's path.
        status: The status of the answer.
        context: What the template shows. Everything is escaped; only `Markup` is HTML already.
    """
    service: Service = request.app.state.service
    now = service.satchel.clock.now()
    around = await _surroundings(service, now)
    here = current or request.url.path
    paths = [link.path for link in around.links if here == link.path or here.startswith(f"{link.path}/")]
    return rendered(
        request.scope,
        template,
        status=status,
        title=title,
        now=now,
        around=around,
        current=max(paths, key=len, default=""),
        sayings=_take_sayings(request),
        person=request.app.state.pages.person,
        has_passkeys=request.app.state.pages.has_passkeys,
        **context,
    )


def see_other(request: Request, to: str, *, say: Saying | None = None) -> Response:
    """The answer to a form that was carried out: the browser opens the page `to`, which shows the message."""
    if say is not None:
        _keep_saying(request, say)
    return RedirectResponse(to, 303)


def say(request: Request, saying: Saying) -> None:
    """Have the next page of this browser show something once."""
    _keep_saying(request, saying)


def _pages(request: Request) -> PageState:
    found: PageState = request.app.state.pages
    return found


def _keep_saying(request: Request, saying: Saying) -> None:
    browser = browser_of(request.scope)
    if browser is None:
        return
    kept = _pages(request).sayings
    kept[browser] = [*kept.pop(browser, ()), saying][-_MOST_SAYINGS:]
    while len(kept) > _MOST_BROWSERS:
        kept.popitem(last=False)


def _take_sayings(request: Request) -> Sequence[Saying]:
    browser = browser_of(request.scope)
    return _pages(request).sayings.pop(browser, []) if browser is not None else []


async def _surroundings(service: Service, now: datetime) -> Surroundings:
    """Parts that fail are left out: an error in the navigation must not replace the page."""
    satchel = service.satchel
    top = await satchel.sessions.part(most=_MOST_IN_RAIL)
    newest = list(top.infos)
    if top.pinned:
        rest = await satchel.sessions.part(first=top.pinned, most=_MOST_IN_RAIL)
        newest = [*(info for info in newest if info.pinned), *rest.infos]
    shown = await rail_sessions(service, newest)
    return Surroundings(
        links=[
            _Link(path="/chat", words="Chat"),
            _Link(path="/memories", words="Memories", count=await _memory_count(service)),
            await _capabilities(service),
            _Link(path="/sessions", words="Conversations", count=f"{top.total:,}" if top.total else ""),
            _Link(path="/projects", words="Projects"),
            *await _shared(service),
            _Link(path="/usage", words="Usage"),
            _Link(path="/settings", words="Settings"),
            _Link(path="/doctor", words="Doctor"),
        ],
        spaces=() if satchel.home.spaces is None else satchel.home.spaces.known,
        groups=[(words, list(group)) for words, group in session_groups(shown, now)],
        sessions=top.total,
        model=await _model_name(service),
        spent_usd=await satchel.sessions.spent_on(local_day(now)),
        day_usd=satchel.settings.budget.day_usd,
    )


async def _shared(service: Service) -> Sequence[_Link]:
    spaces = service.satchel.home.spaces
    if spaces is None:
        return ()
    try:
        invited = any(one.you == "invited" for one in await spaces.all())
    except SatchelError:
        invited = False
    return (_Link(path="/spaces", words="Shared", waits=", you are invited" if invited else ""),)


async def _memory_count(service: Service) -> str:
    try:
        return f"{await service.memory.count():,}"
    except SatchelError:
        return ""


async def _capabilities(service: Service) -> _Link:
    link = _Link(path="/capabilities", words="Capabilities")
    try:
        every = await service.capabilities.catalogue.list()
        asking = await service.capabilities.builds.queue.open_questions()
    except SatchelError:
        return link
    active = sum(one.status == "active" for one in every)
    waits = sum(one.status == "proposed" or asks_user(one, asking) for one in every)
    return replace(link, count=f"{active:,}", waits=f", {waits:,} waiting for you" if waits else "")


async def _model_name(service: Service) -> str:
    try:
        model = await service.satchel.model()
    except SatchelError:
        return "none"
    return model.provider if model.provider == "none" else f"{model.provider}:{model.model}"


async def rail_sessions(service: Service, infos: Sequence[SessionInfo]) -> list[RailSession]:
    """Conversations with their states: "asks" if one waits for the user in a branch, "running" during a turn, or None.

    Raises:
        StorageError: The database failed.
    """
    elsewhere = await service.elsewhere.seen({id for info in infos for id in info.branches or (info.id,)})
    return [RailSession(info=info, state=_state_of(service, elsewhere, info)) for info in infos]


def _state_of(service: Service, elsewhere: Mapping[str, OpenElsewhere], info: SessionInfo) -> State | None:
    ids = info.branches or (info.id,)
    there = [elsewhere[id] for id in ids if id in elsewhere]
    kept = [session for id in ids if (session := service.sessions.kept_session(id)) is not None]
    asks = any(session.open_questions or session.build_questions for session in kept)
    if asks or any(one.questions for one in there):
        return "asks"
    runs = any(service.sessions.turns_of(id) for id in ids) or any(one.is_running for one in there)
    return "running" if runs else None


def session_groups(
    sessions: Iterable[RailSession], now: datetime
) -> Iterator[tuple[str, Iterator[RailSession]]]:
    """Sessions, pinned ones and then the newest first, by "Pinned", "Today", "Yesterday", "Earlier in November",
    "October 2026".
    """

    def words(session: RailSession) -> str:
        if session.info.pinned:
            return "Pinned"
        at = session.info.last_at
        days = (now.date() - at.date()).days
        if days <= 1:
            return "Today" if days <= 0 else "Yesterday"
        is_this_month = (at.year, at.month) == (now.year, now.month)
        return f"Earlier in {at:%B}" if is_this_month else f"{at:%B %Y}"

    return groupby(sessions, key=words)
