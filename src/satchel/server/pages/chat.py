"""The chat: one page for each session, its live updates, and the handlers of its forms."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from html import escape
from pathlib import PurePosixPath
from typing import Annotated, Any, Final, get_args
from urllib.parse import quote

import anyio.to_thread
from fastapi import APIRouter, Header, HTTPException, Query, Request
from pydantic import ValidationError
from starlette.responses import Response

from satchel.capabilities.files import content_of
from satchel.config import Mode
from satchel.errors import NotFound, SatchelError, UsageError
from satchel.events import Event
from satchel.memory import MemoryRecord
from satchel.memory.show.agenda import AgendaLine
from satchel.messages import FileBlock
from satchel.runtime import ForgetReceipt, RunningTurn, Session
from satchel.runtime.build_answers import Heard, hear_line
from satchel.runtime.commands import COMMANDS, CommandContext, CommandResult, find_command, run_command
from satchel.runtime.lines import counted, receipt_lines
from satchel.runtime.rewinding import said_at
from satchel.runtime.turns import is_busy
from satchel.server.json_answers import JsonAnswer
from satchel.server.pages.assets import FRAMED
from satchel.server.pages.following import FollowedPart, follow, read_transcript, who_runs
from satchel.server.pages.markdown import code_blocks
from satchel.server.pages.memory import carry_out
from satchel.server.pages.queries import path_with
from satchel.server.pages.rendering import PICTURES, Form, Saying, form_of, text_of_template
from satchel.server.pages.site import page, say, see_other
from satchel.server.pages.transcript import Turn
from satchel.server.passing_on import passed_after
from satchel.server.service import Serves, Service
from satchel.server.shapes import AttachedFile
from satchel.sessions import SessionInfo
from satchel.sessions.attachments import MOST_BYTES, MOST_FILES
from satchel.sessions.branches import as_listed, versions
from satchel.sessions.view import Said
from satchel.tools.builtin.fence import Place
from satchel.tools.kept import FOLDER, kept_path

router = APIRouter(include_in_schema=False)

_AGENDA_TOKENS: Final = 300
"""About ten lines."""
_MOST_LOOKED_UP: Final = 200
"""Each is read with a query of its own, and the page waits for all of them."""
_TURNS_ON_PAGE: Final = 40
_DRAWN: Final = ("html", "svg")
"""What a frame may show: the languages of code, and the endings of files."""
_FRAME: Final = (
    '<!doctype html><meta charset="utf-8"><title>Shown</title>'
    "<style>body {{ margin: 0 }} iframe {{ display: block; border: 0; width: 100vw; height: 100vh }}</style>"
    '<iframe title="Shown" sandbox="allow-scripts" srcdoc="{}"></iframe>'
)
_MOST_SEQ: Final = 10**15
_BY: Final = "browser"
_TERMINAL_ONLY: Final = frozenset({"quit", "exit"})
MODES: Final = (
    ("ask", "when I agree"),
    ("auto", "without asking, in a sandbox"),
    ("plan", "once you approve a plan"),
    ("bypass", "without asking, everywhere"),
)
After = Annotated[int, Query(ge=0, le=_MOST_SEQ)]


# Pages


@router.get("/")
async def begin(
    request: Request,
    service: Serves,
    private: bool = False,
    project: Annotated[str, Query(max_length=100)] = "",
    message: Annotated[str, Query(max_length=20_000)] = "",
) -> Response:
    """A page on which a new session begins, with what an address puts into the field, in a project or in none."""
    begun_in = service.satchel.home.projects.find(project) if project else None
    return await page(
        request,
        "chat.html",
        title="New chat",
        current="/chat",
        session=None,
        turns=(),
        draft=message,
        is_private=private,
        project=begun_in,
        ahead=[] if private or begun_in else await _ahead(service),
        **await _composer(service, None),
    )


async def _ahead(service: Service) -> Sequence[AgendaLine]:
    """The agenda of the next days; empty without memory."""
    if service.satchel.memory is None:
        return ()
    try:
        return (await service.memory.agenda(budget_tokens=_AGENDA_TOKENS)).memories
    except SatchelError:
        return ()


@router.get("/chat/{id}")
async def show(
    request: Request, service: Serves, id: str, first: Annotated[int | None, Query(ge=1)] = None
) -> Response:
    """A session, with its newest turns, or those from `first` on."""
    info = await service.satchel.sessions.info(id)
    family = await service.satchel.sessions.branches(info)
    info = as_listed(info, family)
    # Before the log is read, which a turn that has begun reaches a moment later: one that has ended by then is in it.
    has_begun = bool(service.sessions.turns_of(info.id))
    transcript = await read_transcript(service, info.id)
    where = await who_runs(service, info.id, transcript)
    if where == "nobody" and transcript.is_running:
        transcript.cut_off()
    tuple(transcript.take_changes())
    numbers = sorted(transcript.turns)
    shown = [n for n in numbers if n >= first] if first is not None else numbers[-_TURNS_ON_PAGE:]
    turns = [transcript.turns[number] for number in shown]
    next_turn = numbers[-1] + 1 if numbers else 1  # by what is shown: a turn may have begun since `info`
    return await page(
        request,
        "chat.html",
        title=info.title or "Conversation",
        current="/chat",
        session=info,
        session_id=info.id,
        where=where,
        transcript=transcript,
        turns=turns,
        ended=await _ended(service, turns),
        earlier=max(1, shown[0] - _TURNS_ON_PAGE) if shown and shown[0] > numbers[0] else None,
        # The page's event stream draws the same turns, and those after them.
        first_seq=turns[0].after_seq if turns and shown[0] > numbers[0] else 0,
        is_running=transcript.is_running and where != "nobody",
        has_begun=has_begun,
        versions=versions(info, family),
        next_turn=next_turn,
        draft=await _draft(service, info) if (where, next_turn) == ("nobody", info.branch_turn) else "",
        is_private=info.private,
        project=service.satchel.home.projects.get(info.project),
        projects=[one for one in service.satchel.home.projects.all() if not one.archived],
        **await _composer(service, info.id),
    )


async def _draft(service: Service, info: SessionInfo) -> str:
    """The message in whose place a branch goes on."""
    try:
        return (await said_at(service.satchel, info.branch_of, info.branch_turn))[0]
    except NotFound:
        return ""


async def _ended(service: Service, turns: Sequence[Turn]) -> frozenset[str]:
    """Which of the shown memories no longer hold or are forgotten."""
    ids = {memory.id for turn in turns for memory in (*turn.recalled, *turn.profile, *turn.agenda)}
    if service.satchel.memory is None or not ids:
        return frozenset()
    now, ended = service.satchel.clock.now(), set[str]()
    for id in sorted(ids)[:_MOST_LOOKED_UP]:
        try:
            until = (await (await service.memory_with(id)).get(id)).valid_to
        except NotFound:
            ended.add(id)
            continue
        if until is not None and until <= now:
            ended.add(id)
    return frozenset(ended)


async def _composer(service: Service, session_id: str | None) -> dict[str, Any]:
    """The context of the field for the next message."""
    kept = service.sessions.kept_session(session_id) if session_id else None
    usual: str = service.satchel.settings.agent.mode
    mode = await service.satchel.mode_of(session_id) if session_id and kept is None else usual
    return {
        "mode": kept.mode if kept is not None else mode,
        "modes": MODES,
        "commands": [each for each in COMMANDS.values() if each.name not in _TERMINAL_ONLY],
        "has_memory": service.satchel.memory is not None,
        "most_bytes": MOST_BYTES,
        "most_files": MOST_FILES,
    }


@router.get("/chat/{id}/made/{call}/{path:path}")
async def made_file(service: Serves, id: str, call: str, path: str, framed: bool = False) -> Response:
    """A file that a capability made in this session: a picture as one, anything else as a download.

    Its content is untrusted: nothing in it may run, and no other page may use it; see `_framed` for HTML and SVG.
    """
    return await _file_of(service, id, (f"{call}-files", *path.split("/")), path, framed=framed)


async def _answer_of(service: Service, id: str, number: int) -> str:
    turn = await service.satchel.sessions.turn(id, number)
    if turn is None or not (said := [part.text for part in turn.of(Said)]):
        raise NotFound("The turn has no answer.")
    return "\n\n".join(said)


@router.get("/chat/{id}/turns/{number}.md")
async def answer_of(service: Serves, id: str, number: int) -> Response:
    """What the model said in a turn, in Markdown, for the clipboard."""
    return Response(await _answer_of(service, id, number), media_type="text/plain; charset=utf-8")


@router.get("/chat/{id}/turns/{number}/code/{place}")
async def made_page(service: Serves, id: str, number: int, place: int) -> Response:
    """A block of HTML or SVG that the model wrote, for a frame of the chat page; see `_framed`."""
    blocks = code_blocks(await _answer_of(service, id, number))
    if not 0 <= place < len(blocks) or blocks[place][0] not in _DRAWN:
        raise NotFound("There is no such block.")
    return _framed(blocks[place][1])


def _framed(content: str) -> Response:
    """HTML or SVG inside a frame of a page that is ours and has no script.

    So it is never a page of its own, whatever opens this address: a script in it could lead such a page to another
    address, and take with it what it shows. `FRAMED` holds for the frame, too, and lets it lead nowhere.
    """
    page = _FRAME.format(escape(content))
    headers = {**FRAMED, "cache-control": "private, no-store"}
    return Response(page, media_type="text/html; charset=utf-8", headers=headers)


@router.get("/chat/{id}/attached/{name}")
async def attached_file(service: Serves, id: str, name: str, framed: bool = False) -> Response:
    """A file of a message, or of a tool's result, as those that a capability made."""
    return await _file_of(service, id, (FOLDER, name), name, framed=framed)


@router.post("/chat/{id}/attached/{name}/remember")
async def remember_attached(request: Request, service: Serves, id: str, name: str) -> Response:
    """Remember a file of a message, or of a tool's result, as a document."""
    form = await form_of(request)
    content = await _content(service, id, (FOLDER, name), name)
    project = (await service.satchel.sessions.info(id)).project
    done = await service.remember(content, form.get("filename", name), project=project)
    text = f"Remembered{' in the project' if project else ''}: {counted(done.passages, 'passage')}."
    link = f"/projects/{project}" if project else "/memories/documents"
    return _done(request, f"/chat/{id}", say=Saying(text=text, link=link, link_label="All documents"))


async def _file_of(service: Service, id: str, parts: tuple[str, ...], path: str, *, framed: bool) -> Response:
    content = await _content(service, id, parts, path)
    if framed and PurePosixPath(path).suffix.lower().removeprefix(".") in _DRAWN:
        return _framed(content.decode(errors="replace"))
    kind = PICTURES.get(PurePosixPath(path).suffix.lower())
    headers = {"content-security-policy": "default-src 'none'; sandbox", "cache-control": "private, no-store"}
    if kind is None:
        headers["content-disposition"] = f"attachment; filename*=UTF-8''{quote(parts[-1], safe='')}"
    return Response(content, media_type=kind or "application/octet-stream", headers=headers)


async def _content(service: Service, id: str, parts: tuple[str, ...], path: str) -> bytes:
    info = await service.satchel.sessions.info(id)
    if any(part in ("", ".", "..") or "/" in part or "\0" in part for part in parts):
        raise NotFound("There is no such file.")
    folder = await service.satchel.sessions.folder_of(info, "/".join(parts))
    place = Place(root=folder, parts=parts, name=path)
    return await anyio.to_thread.run_sync(content_of, place)


@router.get("/chat/{id}/events")
async def events(
    request: Request,
    service: Serves,
    id: str,
    first: After = 0,
    after: After = 0,
    last_event_id: Annotated[str | None, Header()] = None,
) -> Response:
    """The changes of a session's page, as events; see `follow`."""
    if last_event_id is not None:
        first, after = _place(last_event_id)
    info = await service.satchel.sessions.info(id)
    following = follow(service, request.scope, FollowedPart(session_id=info.id, first=first, after=after))
    return service.stream(following)


def _place(text: str) -> tuple[int, int]:
    first, dot, after = text.partition(".")
    if not (dot and all(each.isascii() and each.isdigit() and len(each) <= 15 for each in (first, after))):
        raise UsageError("The Last-Event-ID is not a place in a session.")
    return int(first), int(after)


# The handlers of forms. A script asks for JSON and updates the page itself; without one, the browser opens the page.


def _done(request: Request, to: str, *, say: Saying | None = None, **more: Any) -> Response:
    if not _is_script(request):
        return see_other(request, to, say=say)
    html = text_of_template(request.scope, "chat_saying.html", said=say) if say is not None else ""
    return JsonAnswer({"to": to, "html": html.strip(), **more})


def _is_script(request: Request) -> bool:
    return request.headers.get("accept", "") == "application/json"


@router.post("/chat")
async def start(request: Request, service: Serves) -> Response:
    """Begin a session with a message or a command."""
    return await _send(request, service, None)


_WAITS: Final = "Your message waits for the end of this turn. /back takes it back."


@router.post("/chat/{id}")
async def send(request: Request, service: Serves, id: str) -> Response:
    """Send a message or a command."""
    info = await service.satchel.sessions.info(id)
    return await _send(request, service, info.id)


async def _send(request: Request, service: Service, session_id: str | None) -> Response:
    form = await form_of(request)
    message = form.get("message")
    command = find_command(message)
    files = _attached(form)
    if not message and not files:
        raise UsageError("The message is empty.")
    service.check_running()
    model, mode = form.get("model") or None, _mode(form)
    is_open = session_id is not None and service.sessions.kept_session(session_id) is not None
    async with service.sessions.used(
        session_id,
        interactive=True,
        model=None if is_open else model,
        mode=None if is_open else mode,
        private=session_id is None and form.has("private"),
        project=form.get("project") if session_id is None else "",
    ) as session:
        # A page that was opened before knows nothing of a plan that is proposed.
        if mode is not None and (is_open or not session.conversation.proposes_plan):
            session.mode = mode
        if command is not None and command[0].name not in _TERMINAL_ONLY:
            context = _Command(service, session, message, form.has("confirmed"))
            return await context.run(request, *command)
        if is_open and model is not None and not await is_busy(session.running):
            session.use_model(await service.satchel.model(model))
        heard = Heard(is_message=True) if files else await hear_line(session, message, by="the web page")
        if not heard.is_message:
            return _done(request, f"/chat/{session.id}", say=Saying(text=heard.note) if heard.note else None)
        has_memory = session_id is None or not form.has("private")
        running = await session.start(message, memory=has_memory, files=files)
        return _following(request, service, session, running, note=heard.note)


def _attached(form: Form) -> list[FileBlock]:
    """The files that the message names."""
    try:
        return [AttachedFile.model_validate_json(text).block() for text in form.all("attached")]
    except ValidationError as error:
        raise UsageError("The form names no file that was sent.") from error


def _mode(form: Form) -> Mode | None:
    wanted = form.get("mode")
    return next((mode for mode in get_args(Mode) if mode == wanted), None)


def _following(
    request: Request, service: Service, session: Session, running: RunningTurn | None, *, note: str = ""
) -> Response:
    if running is not None:
        service.sessions.follow_turn(session, running, interactive=True)
    to = f"/chat/{session.id}"
    if running is not None and running.waits:
        return _done(request, to, session=session.id, say=Saying(text=_WAITS, state="on", raw=note))
    return _done(
        request,
        f"{to}#turn-{running.number}" if running is not None else to,
        say=Saying(text=note, state="asks") if note else None,
        session=session.id,
        turn=running.number if running is not None else None,
    )


@dataclass(frozen=True, slots=True)
class _Command:
    """A `/` command that was sent as a message."""

    service: Service
    session: Session
    text: str
    is_confirmed: bool

    async def run(self, request: Request, command: Any, rest: str) -> Response:
        told: list[str] = []
        context = CommandContext(
            satchel=self.service.satchel, session=self.session, show=_ignore, tell=told.append
        )
        result: CommandResult = await run_command(context, command, rest)
        if result.confirm is not None and self.is_confirmed:
            result = await result.confirm.proceed()
        here = f"/chat/{self.session.id}" if self.session.turns else "/"
        if result.change is not None:
            if result.change.session_id is None:
                change = result.change
                given = {"private": "true" if change.private else "", "project": change.project}
                return _done(request, path_with("/", given), opens=True)
            info = await self.service.satchel.sessions.info(result.change.session_id)
            if result.change.draft:  # it goes on as the other one did
                before, sessions = self.session, self.service.sessions
                async with sessions.used(
                    info.id, interactive=True, mode=before.mode, keeps_empty=True
                ) as session:
                    session.use_model(before.model)
            if result.lines and (saying := self._saying(result, told)):
                say(request, saying)
            return _done(request, f"/chat/{info.id}", opens=True)
        if result.resumes:
            return _following(request, self.service, self.session, await self.session.resume())
        if result.message:
            return _following(request, self.service, self.session, await self.session.start(result.message))
        return _done(request, here, say=self._saying(result, told), mode=self.session.mode)

    def _saying(self, result: CommandResult, told: list[str]) -> Saying | None:
        posted = {
            post.text for post in self.session.posts
        }  # in a line, it stands in the conversation as it does here
        lines = [*told, *(line.text for line in result.lines if "\n" in line.text or line.text not in posted)]
        if result.lines and not lines:
            return None
        if result.confirm is not None and not self.is_confirmed:
            return Saying(
                text=result.confirm.question,
                state="asks",
                raw="\n".join(lines),
                action=f"/chat/{self.session.id}" if self.session.turns else "/chat",
                label="Yes",
                fields={"message": self.text, "confirmed": "1"},
            )
        short = "\n" not in "\n".join(lines) and len("".join(lines)) < 120
        said = " ".join(lines) if short else self.text.partition("\n")[0][:200]
        return Saying(text=said or "Done.", raw="" if short else "\n".join(lines))


def _ignore(_: Event) -> None:
    """The events of a tool that a command runs are in its result too."""


@router.post("/chat/{id}/branch")
async def branch(request: Request, service: Serves, id: str) -> Response:
    """Say something else in place of a turn, or the same once more, in a branch; what was said stays as it is."""
    form = await form_of(request)
    info = await service.satchel.sessions.info(id)
    service.check_running()
    number = form.get("turn")
    which = int(number) if number.isdecimal() and len(number) < 10 else -1
    said = await service.satchel.sessions.turn(info.id, which)
    if said is None or said.start is None:
        raise NotFound(f"This conversation has no turn {number[:20]!r}.")
    again, files = said.start.message, _attached(form)
    if not form.has("message"):  # the same words, with what was attached to them
        folder = await service.satchel.sessions.folder_of(info)
        for file in again.files:
            with suppress(FileNotFoundError):  # it was forgotten
                content = await anyio.to_thread.run_sync(kept_path(folder, file).read_bytes)
                files.append(await service.uploaded(content, file.name))
    text = form.get("message") if form.has("message") else again.text
    if not text.strip() and not files:
        raise UsageError("The message is empty.")
    model = form.get("model") or None
    await service.satchel.model(model)  # what can't be used leaves no branch
    kept = service.sessions.kept_session(info.id)
    # What was said off the record is answered again off the record.
    memory = not form.has("private") and (form.has("message") or said.captured != ())
    new = await service.satchel.sessions.branch(info.id, said.number)
    async with service.sessions.used(
        new, interactive=True, model=model, mode=_mode(form) or (kept.mode if kept is not None else None)
    ) as session:
        running = await session.start(text, memory=memory, files=files)
        service.sessions.follow_turn(session, running, interactive=True)
    return _done(request, f"/chat/{new}#turn-{running.number}", opens=True)


@router.post("/chat/{id}/rewind")
async def rewind(request: Request, service: Serves, id: str) -> Response:
    """Go back to before a message, and to the files as they were then, once the user agrees to these."""
    form = await form_of(request)
    text = f"/rewind {form.get('turn')} files"
    found = find_command(text)
    assert found is not None
    async with service.sessions.used(
        (await service.satchel.sessions.info(id)).id, interactive=True
    ) as session:
        return await _Command(service, session, text, is_confirmed=False).run(request, *found)


@router.post("/chat/{id}/answer")
async def answer(request: Request, service: Serves, id: str) -> Response:
    """Answer a question: of a tool, for permission, of the agent or of the Builder."""
    form = await form_of(request)
    info = await service.satchel.sessions.info(id)
    consent: Any = form.get("consent") or None
    per_call = {name.removeprefix("call-"): value for name, value in form.items if name.startswith("call-")}
    text = None if form.has("declined") else (form.get("option") or form.get("text"))
    if consent is None and per_call:
        consent = per_call
    if consent is None and not form.has("declined") and not text:
        raise UsageError("The answer is empty.")
    await service.check_here(info.id)
    async with service.sessions.used(info.id, interactive=True) as session:
        running = await session.answer(
            form.get("question"),
            None if consent is not None else text,
            consent=consent,
            words=form.get("words"),
            by=_BY,
        )
        return _following(request, service, session, running)


@router.post("/chat/{id}/stop")
async def stop(request: Request, service: Serves, id: str) -> Response:
    """Interrupt the running turn."""
    info = await service.satchel.sessions.info(id)
    await service.check_here(info.id)
    running = service.sessions.to_stop(info.id, passed_after(request.scope))
    if running is None:
        raise NotFound("No turn of this conversation is running here.")
    running.cancel()
    return _done(request, f"/chat/{info.id}")


@router.post("/chat/{id}/resume")
async def resume(request: Request, service: Serves, id: str) -> Response:
    """Resume an interrupted turn."""
    info = await service.satchel.sessions.info(id)
    async with service.sessions.used(info.id, interactive=True) as session:
        if session.running is not None:
            raise HTTPException(409, "A turn is running in this conversation.")
        return _following(request, service, session, await session.resume())


@router.post("/chat/{id}/memories/{memory_id}")
async def judge(request: Request, service: Serves, id: str, memory_id: str) -> Response:
    """Mark a shown memory as wrong or outdated, or forget it."""
    form = await form_of(request)
    record = await (await service.memory_with(memory_id)).get(memory_id)
    match form.get("do"):
        case "outdated":
            said, mark = await _changed(service, id, record, form), "past"
        case "wrong":
            said, mark = await _changed(service, id, record, form), "changed"
        case "forget" if form.has("confirmed"):
            receipt = await service.satchel.forget([record.id])
            said, mark = Saying(text=f"Forgotten: {_going(receipt)}.", raw=_kept_elsewhere(receipt)), "gone"
        case "forget":
            said, mark = await _plan(service, id, record), ""
        case other:
            raise UsageError(f"A memory can't be {other!r}.")
    return _done(request, f"/chat/{id}", say=said, memory=record.id, mark=mark, content=form.get("content"))


async def _changed(service: Service, id: str, record: MemoryRecord, form: Form) -> Saying:
    is_wrong = form.get("do") == "wrong"
    if is_wrong and not form.get("content"):
        raise UsageError("Write the correct words, or forget the memory.")
    what, why = (
        ("correct", "corrected on the chat page") if is_wrong else ("outdated", "said on the chat page")
    )
    change = await carry_out(service, record.id, what, form, why=why)
    if change is None:
        return Saying(text="It is so already.", state="off")
    ended = f"“{_shortened(record)}” held until now, and is no longer shown to the model."
    return Saying(
        text="Corrected. The old words are in its history." if is_wrong else ended,
        action=f"/chat/{id}/undo/{change}",
        link=f"/memories/{record.id}",
    )


async def _plan(service: Service, id: str, record: MemoryRecord) -> Saying:
    planned = await service.satchel.forget([record.id], dry_run=True)
    return Saying(
        text=f"Forget “{_shortened(record)}” for good? What goes: {_going(planned)}. It can’t be undone.",
        state="warn",
        action=f"/chat/{id}/memories/{record.id}",
        label="Forget it for good",
        fields={"do": "forget", "confirmed": "1"},
    )


def _going(receipt: ForgetReceipt) -> str:
    """What would be removed, as a part of a sentence."""
    gone = receipt.store.forgotten
    derived = sum(bool(entry.because_of) for entry in gone)
    edges = sum(entry.edges for entry in gone)
    parts = [
        counted(len(gone) - derived, "memory", "memories"),
        f"{counted(derived, 'memory', 'memories')} drawn from it alone" if derived else "",
        f"{counted(len(receipt.store.echoes), 'echo', 'echoes')} of it in others"
        if receipt.store.echoes
        else "",
        counted(edges, "link") if edges else "",
        "its words in the conversation logs",
    ]
    return ", ".join(part for part in parts if part)


def _kept_elsewhere(receipt: ForgetReceipt) -> str:
    """Backups and logs that may still have the words."""
    return "\n".join(line.strip() for line in receipt_lines(receipt) if line.lstrip().startswith("!"))


@router.post("/chat/{id}/undo/{change_id}")
async def undo(request: Request, service: Serves, id: str, change_id: str) -> Response:
    """Undo a change of a memory."""
    await service.undo(change_id)
    return _done(request, f"/chat/{id}", say=Saying(text="It holds again."))


def _shortened(record: MemoryRecord) -> str:
    words = " ".join(record.content.split())
    return words if len(words) <= 120 else f"{words[:119]}…"
