"""The conversation on the full screen: shows the events of its session, from all clients, and sends what is typed."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final, assert_never

import anyio
import anyio.to_thread
from rich.table import Table
from rich.text import Text
from textual.app import App, ComposeResult
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.events import Key
from textual.filter import Monochrome, NoColor
from textual.widget import Widget
from textual.widgets import Input, Static, TextArea
from textual.worker import Worker

from satchel.config import Mode
from satchel.errors import SatchelError, ServerUnavailable
from satchel.events import (
    AskUser,
    BuildPosted,
    Compaction,
    Failure,
    MemorySurfaced,
    MessageTakenBack,
    MessageWaiting,
    Notice,
    Posted,
    QuestionAnswered,
    QuestionAsked,
    Record,
    ThinkingDelta,
    ToolInputDelta,
    TurnEnd,
    TurnResumed,
    TurnStart,
    is_transient,
)
from satchel.runtime.attaching import dropped_in, files_named, remove_sent
from satchel.runtime.build_answers import hear_line
from satchel.runtime.clipboard import picture_in_clipboard
from satchel.runtime.commands import (
    COMMANDS,
    CommandResult,
    Confirm,
    OwnPosts,
    SessionChange,
    SlashCommand,
    find_command,
)
from satchel.runtime.hosting import Host, SharedSession
from satchel.runtime.lines import counted, usage_line
from satchel.runtime.options import chosen_option
from satchel.runtime.recap import Exchange
from satchel.runtime.tool_display import display_of
from satchel.sessions.view import LastWords, Said, SessionView, ToolCall
from satchel.tui.composer import Composer, Menu
from satchel.tui.dialogs import Choose, TextScreen
from satchel.tui.looks import DARK, LIGHT, STYLE
from satchel.tui.parts import (
    AnswerGiven,
    CallLine,
    MemoryNote,
    QuestionPrompt,
    TurnWidget,
    Waiting,
    line_of,
    question_text,
)
from satchel.tui.plain_text import plain
from satchel.tui.terminal_text import how_to_answer, notice_text, one_line, outcome_of, post_text
from satchel.version import __version__
from satchel.wording import yes_or_no

_PAINT_S: Final = 0.05
"""Seconds between two paintings of streamed text. A text that takes long to paint is painted less often."""
_TWICE_S: Final = 2.0
"""Within this time, a second Ctrl-C leaves, and a second Esc goes back."""
_MOST_TURNS: Final = 60
"""The most turns that stay on the screen: scrolling further back is what `satchel session show` is for."""
_RECAPPED: Final = 3
_MOST_OUTPUT: Final = 200_000
_NARROW: Final = 70
INTERRUPTED: Final = 130
_MODES: Final[Sequence[Mode]] = ("ask", "auto", "plan")
"""Those that Shift-Tab leads through; "bypass" has to be named."""

_KEYS: Final = (
    ("Enter", "send"),
    ("Alt-Enter, Ctrl-J", "new line; in some terminals Shift-Enter, too, and in all \\ and Enter"),
    ("Tab", "accept the highlighted word"),
    ("@path", "attach a file below this folder, as pasting its path or dragging it here does"),
    ("Ctrl-V", "attach the picture of the clipboard"),
    ("! command", "run a command here"),
    ("Up, Down", "earlier messages"),
    ("Ctrl-R", "search earlier messages"),
    ("Ctrl-O", "continue another conversation"),
    ("Ctrl-T", "show or hide the input and output of tools; a click does it for one"),
    ("Shift-Tab", "the next mode: ask, auto (acts without asking, in a sandbox), plan"),
    ("PgUp, PgDn", "scroll"),
    ("Esc, Ctrl-C", "interrupt the answer"),
    ("Esc twice", "go back to an earlier message"),
    ("Ctrl-C twice, Ctrl-D", "leave"),
    ("drag, then Ctrl-C", "copy; with Shift, the terminal selects"),
)


class ConversationScreen(App[int]):
    """One run of the screen.

    Attributes:
        session: The current session; closed at the end.
    """

    CSS = STYLE
    ENABLE_COMMAND_PALETTE = False
    BINDINGS = [
        Binding("ctrl+c", "interrupt", show=False, priority=True),
        Binding("escape", "stop", show=False),
        Binding("ctrl+r", "said", show=False),
        Binding("ctrl+o", "sessions", show=False, priority=True),
        Binding("ctrl+t", "details", show=False, priority=True),
        Binding("shift+tab", "mode", show=False, priority=True),
        Binding("f1", "keys", show=False),
        Binding("pageup", "scroll(-1)", show=False, priority=True),
        Binding("pagedown", "scroll(1)", show=False, priority=True),
        Binding("ctrl+q", "leave", show=False),
    ]

    def __init__(
        self,
        host: Host,
        session: SharedSession,
        *,
        is_dark: bool,
        monotonic_s: Callable[[], float],
        typed: str = "",
    ) -> None:
        """Show an open session.

        Args:
            host: Where the sessions are; opened and closed by the caller.
            session: The session.
            is_dark: The terminal's background is dark.
            monotonic_s: A clock.
            typed: What stands in the field.
        """
        super().__init__()
        # With NO_COLOR, Textual would still show greys.
        self._filters = [NoColor() if isinstance(each, Monochrome) else each for each in self._filters]
        self.register_theme(DARK)
        self.register_theme(LIGHT)
        self.theme = DARK.name if is_dark else LIGHT.name
        self.session = session
        self._host = host
        self._monotonic_s = monotonic_s
        self._typed = typed
        self._head = Static(id="head", markup=False)
        self._conversation = VerticalScroll(id="conversation", can_focus=False)
        self._menu = Menu()
        self._composer = Composer(self._menu, self._dropped_in)
        self._status = Static(id="status", markup=False)
        self._shown_status = Text()
        self._turn: TurnWidget | None = None
        self._asks: dict[str, QuestionPrompt] = {}
        self._waiting: Waiting | None = None
        self._confirm: tuple[Confirm, Waiting] | None = None
        self._own = OwnPosts()
        self._following: Worker[None] | None = None
        self._work: Worker[None] | None = None
        self._activity = ""
        self._view = SessionView()
        self._is_expanded = False
        self._interrupted_s = self._escaped_s = -_TWICE_S
        self._next_paint_s = 0.0
        self._queued: dict[str, Widget] = {}

    # The screen

    def compose(self) -> ComposeResult:
        """See `App.compose`."""
        yield self._head
        yield self._conversation
        yield self._menu
        yield self._composer
        yield self._status

    async def on_mount(self) -> None:
        """See `App.on_mount`."""
        self._conversation.anchor()
        self._composer.put(self._typed)
        self._composer.focus()
        self.set_interval(_PAINT_S, self._paint)
        self.set_interval(1.0, self._draw_status)
        await self._enter()
        self._start(self._read_said, group="said")

    @property
    def _is_dark(self) -> bool:
        return self.current_theme.dark

    async def _enter(self) -> None:
        """Show the current session from now on."""
        session = self.session
        if session.turns:
            await self._recap()
        else:
            self._tell("F1 shows the keys, /help the commands.", "dim")
        if session.model_name == "none":
            self._tell(
                "No language model is set up: Satchel remembers and recalls. "
                "`satchel model list` shows how to add one.",
                "dim",
            )
        for message in session.waiting:
            self._queue(message)
        running = session.running
        after = running.after_seq if running is not None else session.last_seq
        self._following = self._start(partial(self._follow, session, after), group="follow", exclusive=True)
        self._sync()
        self._draw_head()
        self._draw_status()

    async def _recap(self) -> None:
        session = self.session
        try:
            exchanges = await self._host.exchanges(session, _RECAPPED)
        except SatchelError as error:
            self._tell(f"△ The earlier conversation can't be shown: {error}", "warn")
            return
        earlier = session.turns - len(exchanges)
        if earlier > 0:
            self._tell(f"… {counted(earlier, 'earlier turn')}: satchel session show {session.id}", "dim")
        running = session.running
        for exchange in exchanges:
            if running is None or exchange.turn != running.number:
                await self._show_exchange(exchange)
        if session.is_interrupted and not session.open_questions:
            self._tell_interrupted()

    async def _show_exchange(self, exchange: Exchange) -> None:
        turn = TurnWidget(
            exchange.said, time=f"{exchange.at.astimezone():%a %Y-%m-%d %H:%M}", is_dark=lambda: self._is_dark
        )
        await self._conversation.mount(turn)
        await turn.mount_all([line_of(f"│ {call}", "dim") for call in exchange.calls])
        if exchange.question is not None:
            question = exchange.question
            if question == self.session.pending_question:
                await self._wait(turn, question_text(question.question, question.options))
            else:
                await turn.mount(line_of(f"? {question.question}"))
        elif exchange.answer:
            turn.say().finish(exchange.answer)
        if exchange.status in (None, "cancelled"):
            await turn.mount(line_of("(interrupted)", "dim"))
        turn.close()

    def _tell_interrupted(self) -> None:
        self._tell("The last turn was interrupted. /continue resumes it; any message abandons it.", "warn")

    def _draw_head(self) -> None:
        session = self.session
        private = " · private" if session.private else ""
        private += f" · project {session.project}" if session.project else ""
        where = f" · {self._host.url}" if self._host.url else ""
        grid = Table.grid(expand=True)
        grid.add_column(no_wrap=True)
        grid.add_column(no_wrap=True, justify="right", overflow="ellipsis")
        grid.add_row(
            Text("Satchel", style="bold")
            if self.size.width < _NARROW
            else Text(f"Satchel {__version__}", style="bold"),
            Text(f"conversation {session.id[:12]}{private}{where}", style="dim"),
        )
        self._head.update(grid)

    def _draw_status(self) -> None:
        session = self.session
        running = session.running
        if self._confirm is not None or any(ask.has_class("waits") for ask in self._asks.values()):
            left = Text("? Waits for you", style="bold")
        elif running is not None:
            left = Text(f"▸ {self._activity or 'thinking'} · Esc interrupts")
        elif self._work is not None:
            left = Text("▸ running · Esc interrupts")
        else:
            left = Text("" if self.size.width < _NARROW else "Enter sends · F1 keys", style="dim")
        # What is pressed stays in sight, and the mode: the figures give way, and then a long name.
        room = max(self.size.width - 3 - left.cell_len, 0)
        mode, spent = f" · {session.mode}", usage_line(session.usage)
        right = Text(plain(session.model_name))
        right.truncate(max(room - len(mode), 0), overflow="ellipsis")
        right.append(f"{mode} · {spent}" if spent else mode)
        right.truncate(room, overflow="ellipsis")
        line = Text.assemble(left, " " * (room + 1 - right.cell_len), right)
        if line != self._shown_status:
            self._shown_status = line
            self._status.update(line)

    def on_resize(self) -> None:
        """The head and the status fit the width, once it is known."""
        self.call_after_refresh(self._draw_head)
        self.call_after_refresh(self._draw_status)

    def _tell(self, text: str, kind: str = "") -> None:
        """Show a line from the program at the end."""
        self._add(line_of(text, kind))

    def _add(self, widget: Widget) -> None:
        turn = self._turn
        if turn is not None and turn.is_open:
            if turn.said is not None:
                turn.said.finish()
                turn.said = None
            turn.mount(widget)
        else:
            self._conversation.mount(widget)

    async def _wait(self, where: Widget, *lines: Text) -> None:
        """Show what the next message answers."""
        self._settle_waiting()
        self._waiting = Waiting(*lines)
        await where.mount(self._waiting)

    def _settle_waiting(self, outcome: str = "") -> None:
        if self._waiting is not None:
            self._waiting.remove_class("waits")
            self._waiting.add_class("settled")
            self._waiting = None

    # Events

    async def _follow(self, session: SharedSession, after_seq: int) -> None:
        try:
            async for record in session.subscribe(after_seq):
                if session is not self.session:
                    return
                await self._take(record)
        except SatchelError as error:
            self._tell(f"✕ {error}", "bad")

    async def _take(self, record: Record) -> None:
        if isinstance(record.event, ToolInputDelta):
            self._activity = f"writing a call of {one_line(record.event.tool, 40)}"
        await self._show(record)
        if not is_transient(record.event):
            self._draw_status()

    async def _show(self, record: Record) -> None:
        part = self._view(record)
        match part:
            case None:
                pass
            case TurnStart():
                for id in part.inbox:
                    self._unqueue(id)
                await self._begin(part.message.text, f"{record.at.astimezone():%H:%M}")
            case TurnResumed():
                await self._begin("", "resumed")
            case ThinkingDelta():
                self._activity = "thinking"
            case Said(answer=None, added=text):
                self._activity = "answering"
                (await self._turn_now()).say().feed(text)
            case Said(text=text):
                await self._answered(text)
            case MemorySurfaced():
                await self._surfaced(part)
            case ToolCall(state="running") if display_of(part.tool).is_question:
                pass  # the turn ends with the question, which is shown then
            case ToolCall():
                await self._step(part)
            case QuestionAsked():
                await self._ask(part)
            case QuestionAnswered():
                self._settle(part)
            case AskUser():
                await self._wait(await self._turn_now(), question_text(part.question, part.options))
            case BuildPosted():
                await self._build(part)
            case MessageWaiting():
                self._queue(part)
            case MessageTakenBack(id=id):
                self._unqueue(id)
            case Posted(source=source, text=text):
                is_own = self._own.has(part)
                self._tell(post_text(source, text, is_own=is_own), "dim" if is_own else "")
            case Compaction(before_tokens=before, after_tokens=after):
                self._tell(
                    f"— Older messages were summarised: about {before:,} tokens became {after:,}.", "dim"
                )
            case Notice(part=name, text=text):
                self._noticed(name, text)
            case Failure(part=name, message=message):
                self._tell(f"✕ {name}: {one_line(message, 1000)}", "bad")
            case LastWords():
                self._final(part)
            case TurnEnd():
                self._ended(part)
            case _:
                assert_never(part)

    async def _begin(self, words: str, time: str) -> None:
        self._settle_waiting()
        if self._turn is not None:
            self._turn.close()
        self._turn = TurnWidget(words, time=time, is_dark=lambda: self._is_dark)
        self._activity = ""
        await self._conversation.mount(self._turn)
        self._conversation.anchor()
        turns = [*self._conversation.query(TurnWidget)]
        for old in turns[:-_MOST_TURNS]:
            await old.remove()

    def _queue(self, message: MessageWaiting) -> None:
        """Show a message that waits for its turn."""
        if message.id not in self._queued:
            line = line_of(f"waits: {one_line(message.text, 500)} · /back takes it back", "dim")
            self._queued[message.id] = line
            self._conversation.mount(line)

    def _unqueue(self, id: str) -> None:
        line = self._queued.pop(id, None)
        if line is not None:
            line.remove()

    async def _turn_now(self) -> TurnWidget:
        """The running turn; created if this client joined in its middle, or a tool runs without one."""
        if self._turn is None or not self._turn.is_open:
            await self._begin("", "")
        assert self._turn is not None
        return self._turn

    async def _answered(self, text: str) -> None:
        turn = await self._turn_now()
        if text.strip() or turn.said is not None:
            turn.say().finish(text)
        turn.said = None

    async def _surfaced(self, event: MemorySurfaced) -> None:
        turn = await self._turn_now()
        if event.standing:
            # Only the number of lines is shown; /profile and /agenda show them.
            await turn.mount(line_of(f"{event.standing}: {counted(len(event.memories), 'line')}", "note"))
            return
        await turn.mount_all([MemoryNote(memory) for memory in event.memories])

    async def _step(self, call: ToolCall) -> None:
        turn = await self._turn_now()
        step = turn.steps.get(call.id)
        if step is None:
            step = turn.steps[call.id] = CallLine(call)
            step.is_expanded = self._is_expanded
            self._add(step)
        step.show_call(call)
        tool = next(filter(None, (each.runs for each in turn.steps.values())), "")
        self._activity = f"running {tool}" if tool else ""

    async def _build(self, event: BuildPosted) -> None:
        name = one_line(event.capability)
        match event.kind:
            case "question":
                text = question_text(event.text, event.options, who=name, how=how_to_answer(event))
                await self._wait(self._turn if self._turn is not None else self._conversation, text)
            case "answer":
                self._settle_waiting()
                self._tell(f"  {name}: {one_line(event.text, 200) or 'the Builder decides'}", "dim")
            case "progress":
                self._tell(f"⚒ {name}: {one_line(event.text, 500)}", "dim")
            case "complete":
                self._settle_waiting()
                self._tell(f"⚒ {one_line(event.text, 1000)}", "" if event.status == "active" else "warn")
            case "error":
                self._settle_waiting()
                self._tell(f"⚒ {name} could not be built: {one_line(event.text, 1000)}", "warn")
            case _:
                assert_never(event.kind)

    def _noticed(self, part: str, text: str) -> None:
        if part == "command":
            return  # whoever ran the command has seen its output
        self._tell(f"△ {notice_text(part, text)}", "warn")
        if part == "server":
            self._sync()
            if self.session.is_interrupted and not self.session.open_questions:
                self._tell_interrupted()

    def _final(self, closing: LastWords) -> None:
        status = closing.final.status
        if status == "asking":
            return
        if status == "cancelled":
            self._tell("(interrupted)", "warn")
        elif closing.rest:
            # Satchel's own text about the turn's end.
            self._tell(closing.rest, {"failed": "bad", "limit": "warn"}.get(status, ""))

    def _ended(self, event: TurnEnd) -> None:
        spent = usage_line(event.usage)
        if spent:
            self._tell(f"{spent} · {event.duration_ms / 1000:.1f} s", "dim")
        if self._turn is not None:
            self._turn.close()
        self._activity = ""
        self._sync()

    def _paint(self) -> None:
        """Show what has been streamed since the last time."""
        now_s = self._monotonic_s()
        said = self._turn.said if self._turn is not None else None
        if said is not None and now_s >= self._next_paint_s:
            said.paint()
            took_s = self._monotonic_s() - now_s
            self._next_paint_s = now_s + took_s + 4 * took_s

    # Questions

    async def _ask(self, question: QuestionAsked) -> None:
        if question.id in self._asks and self._asks[question.id].is_attached:
            return
        ask = self._asks[question.id] = QuestionPrompt(question, monotonic_s=self._monotonic_s)
        turn = await self._turn_now()
        if turn.said is not None:
            turn.said.finish()
            turn.said = None
        await turn.mount(ask)
        self._give_keys(ask)

    def _settle(self, event: QuestionAnswered) -> None:
        ask = self._asks.pop(event.id, None)
        if ask is None:
            return
        ask.settle(f"? {outcome_of(event, own=_NAME)}")
        self._focus_next()

    def _sync(self) -> None:
        """Show exactly the open questions."""
        asked = {each.id: each for each in self.session.open_questions if isinstance(each, QuestionAsked)}
        for id in [id for id in self._asks if id not in asked]:
            self._asks.pop(id).settle("? withdrawn")
        for question in asked.values():
            self.call_later(self._ask, question)
        builds = self.session.build_questions
        if builds and self._waiting is None:
            self.call_later(self._build, builds[0])
        self._focus_next()

    def _focus_next(self) -> None:
        waiting = next(iter(self._asks.values()), None)
        if waiting is None:
            self._composer.focus()
        else:
            self._give_keys(waiting)

    def _give_keys(self, ask: QuestionPrompt) -> None:
        """A tool's question has a field of its own, unless the user is writing; the others are answered below."""
        is_writing = self._composer.has_focus and self._composer.text
        next(iter(() if is_writing else ask.query("Input")), self._composer).focus()

    def on_key(self, event: Key) -> None:
        """What answers no question is written in the field, whatever has the keys."""
        is_elsewhere = not isinstance(self.focused, Composer | Input) and len(self.screen_stack) == 1
        if is_elsewhere and event.is_printable and event.character:
            self._composer.focus()
            self._composer.insert(event.character)

    async def on_answer_given(self, event: AnswerGiven) -> None:
        """The user has answered a question. What comes before the first answer has arrived is none, as in "yes"."""
        question = event.ask.question
        if event.ask.is_answered:
            return
        event.ask.is_answered = True
        try:
            if event.consents is not None:
                await self.session.answer(question.id, consent=event.consents, words=event.words, by=_NAME)
            else:
                await self.session.answer(question.id, event.text, by=_NAME)
        except SatchelError as error:
            event.ask.is_answered = False
            self._tell(f"△ {error}", "warn")
            self._sync()

    # What the user does

    async def on_composer_sent(self, event: Composer.Sent) -> None:
        """A message, a command, or the answer to a question."""
        self._conversation.anchor()
        self._interrupted_s = -_TWICE_S
        text = event.text
        if self._confirm is not None:
            await self._confirmed(text)
            return
        try:
            found = find_command(text.strip())
        except SatchelError as error:
            self._tell(f"△ {error}", "warn")
            return
        open_asks = (
            ask for ask in self._asks.values() if ask.question.kind == "permission" and not ask.is_answered
        )
        if found is None and (ask := next(open_asks, None)) is not None:
            if not ask.hear(text):
                self._composer.put(text)
            return
        if found is None:
            self._work = self._start(partial(self._send, text), group="work")
        elif found[0].name == "resume" and not found[1]:
            self.action_sessions()
        else:
            self._tell(one_line(text, 200), "dim")
            self._work = self._start(partial(self._command, *found), group="work")
        if self._asks:
            self._focus_next()
        self._draw_status()

    async def _send(self, text: str) -> None:
        try:
            question = self.session.pending_question
            heard = await hear_line(self.session, text, by=_NAME)
            if heard.note:
                self._tell(heard.note, "dim")
            if question is not None:
                text = chosen_option(text, question.options)
            if heard.is_message:
                files = await anyio.to_thread.run_sync(
                    files_named, self._host.settings, text, self.session.cwd, self._composer.given
                )
                if files:
                    self._tell(f"Attached: {', '.join(file.name for file in files)}", "dim")
                await self.session.start(text, files=files)
                await anyio.to_thread.run_sync(remove_sent, text, self._composer.pictures)
        except SatchelError as error:
            self._tell(f"✕ {error}" if isinstance(error, ServerUnavailable) else f"△ {error}", "warn")
            if not self._composer.text:
                self._composer.put(text)
        finally:
            self._work = None

    async def _command(self, command: SlashCommand, rest: str) -> None:
        try:
            await self._carry_out(command, rest)
        finally:
            self._work = None
            self._draw_head()
            self._draw_status()

    async def _carry_out(self, command: SlashCommand, rest: str) -> None:
        try:
            with self._own.running(command, rest):
                result = await self._host.command(
                    self.session,
                    command,
                    rest,
                    show=lambda _: None,
                    tell=lambda line: self._tell(line, "dim"),
                )
            await self._done(result)
        except SatchelError as error:
            self._tell(f"△ {error}", "warn")

    async def _done(self, result: CommandResult) -> None:
        """Show the result of a command, and carry out its consequences."""
        self._own.show(result)
        data = "\n".join(line.text for line in result.lines if line.kind == "data")
        if data:
            if len(data) > _MOST_OUTPUT:
                data = f"{data[:_MOST_OUTPUT]}\n… {counted(len(data) - _MOST_OUTPUT, 'more character')}"
            self._add(line_of(data, "output"))
        for line in result.lines:
            if line.kind == "note":
                self._tell(line.text, "dim")
        if result.confirm is not None:
            text = Text(plain(result.confirm.question), style="bold")
            text.append("\nType y and Enter to agree; anything else cancels it.", style="dim")
            waiting = Waiting(text)
            self._confirm = result.confirm, waiting
            self._add(waiting)
        if result.change is not None:
            await self._change(result.change)
        elif result.leaves:
            self.exit(0)
        elif result.message:
            await self.session.start(result.message)
        elif result.resumes:
            await self.session.resume()

    async def _confirmed(self, text: str) -> None:
        assert self._confirm is not None
        (confirm, waiting), self._confirm = self._confirm, None
        if not yes_or_no(text):
            waiting.settle(f"{confirm.question} no")
            return
        waiting.settle(f"{confirm.question} yes")
        try:
            await self._done(await confirm.proceed())
        except SatchelError as error:
            self._tell(f"△ {error}", "warn")

    async def _change(self, change: SessionChange) -> None:
        """Continue in another session or a new one. If it can't be opened, the current one stays open."""
        if change.session_id is not None and self.session.id.startswith(change.session_id):
            self._tell("You are in this conversation.", "dim")
            return
        before = self.session
        self.session = await self._host.session(
            change.session_id, private=change.private, project=change.project, interactive=True, like=before
        )
        await before.aclose("left")
        self._turn, self._asks, self._waiting, self._queued = None, {}, None, {}
        await self._conversation.remove_children()
        await self._enter()
        if change.draft:
            self._composer.put(change.draft)

    def _start(
        self, work: Callable[[], Coroutine[Any, Any, None]], *, group: str, exclusive: bool = False
    ) -> Worker[None]:
        """Run `work` beside the screen. Of a coroutine that was cancelled before it began, Python would warn."""
        started: Worker[None] = self.run_worker(work, group=group, exclusive=exclusive)
        return started

    async def on_text_area_changed(self, event: TextArea.Changed) -> None:
        """Offer completions."""
        before = self._composer.before
        last = self._composer.last_word
        if (before.startswith("/") and "\n" not in before) or last.startswith("@"):
            self._start(partial(self._complete, before), group="complete", exclusive=True)
        else:
            self._menu.offer(())

    async def _complete(self, before: str) -> None:
        found = await self._host.completions(before, self.session)
        if self._composer.before == before:
            last = self._composer.last_word
            is_whole = [word for word, _ in found] == [last]
            # A complete word comes before those that continue it.
            found = () if is_whole else sorted(found, key=lambda each: each[0] != last)
            self._menu.offer(found, before)

    async def _read_said(self) -> None:
        self._composer.remember([text async for text in self._host.said_before()])

    def on_composer_pasting(self) -> None:
        """Attach the picture of the clipboard, or else paste words."""
        self._start(self._paste, group="paste", exclusive=True)

    async def _paste(self) -> None:
        if (picture := await picture_in_clipboard(self._host.settings)) is not None:
            self._composer.pictures.add(picture)
            self._composer.mention([picture])
        else:
            self._composer.paste_words()

    def _dropped_in(self, pasted: str, draft: str) -> Sequence[Path]:
        is_answer = self._confirm is not None or self._asks or self.session.pending_question is not None
        return () if is_answer else dropped_in(pasted, draft=draft)

    def on_composer_leave(self) -> None:
        """Ctrl-D in the empty field."""
        self.exit(0)

    def action_leave(self) -> None:
        """Leave at once."""
        self.exit(0)

    def action_interrupt(self) -> None:
        """Copy what is selected; or interrupt; or, the second time, leave."""
        selected = self._composer.selected_text or self.screen.get_selected_text()
        if selected:
            self.copy_to_clipboard(selected)
            self.screen.clear_selection()
            return
        if self._stop_running():
            return
        if self._composer.text:
            self._composer.clear()
            return
        now_s = self._monotonic_s()
        if now_s - self._interrupted_s < _TWICE_S:
            self.exit(INTERRUPTED)
            return
        self._interrupted_s = now_s
        self._tell("Press Ctrl-C again to leave.", "dim")

    def action_stop(self) -> None:
        """Interrupt the turn or the command that runs; the second time, choose a message to go back to."""
        if self._stop_running():
            return
        now_s = self._monotonic_s()
        if now_s - self._escaped_s < _TWICE_S:
            self._start(self._choose_message, group="choose", exclusive=True)
        self._escaped_s = now_s

    def _stop_running(self) -> bool:
        running = self.session.running
        if running is not None and running.cancel():
            pass  # The next key is not lost while the turn is ending.
        elif self._work is not None and not self._work.is_finished:
            self._work.cancel()
            self._tell("(interrupted)", "warn")
        elif self._confirm is not None:
            (confirm, waiting), self._confirm = self._confirm, None
            waiting.settle(f"{confirm.question} no")
        else:
            return False
        return True

    def action_details(self) -> None:
        """Show or hide the input and output of tools."""
        self._is_expanded = not self._is_expanded
        for step in self._conversation.query(CallLine):
            step.open_up(self._is_expanded)

    def action_scroll(self, pages: int) -> None:
        """Scroll the conversation by a page."""
        conversation = self._conversation
        if pages < 0:
            conversation.release_anchor()
            conversation.scroll_page_up(animate=False)
        else:
            conversation.scroll_page_down(animate=False)

    async def action_mode(self) -> None:
        """The next mode; where something waits for an answer, the keys go back to it.

        The next key waits for it: it goes on from there.
        """
        if self._asks or self._confirm is not None or len(self.screen_stack) > 1:
            self.screen.focus_previous()
            return
        at = _MODES.index(self.session.mode) if self.session.mode in _MODES else -1
        await self._carry_out(COMMANDS["mode"], _MODES[(at + 1) % len(_MODES)])
        self._draw_status()

    def action_keys(self) -> None:
        """Show what the keys do."""
        self.push_screen(TextScreen("Keys", _KEYS))

    def action_said(self) -> None:
        """Search earlier messages."""
        said = [*self._composer.said]

        def take(number: int | None) -> None:
            if number is not None:
                self._composer.put(said[number])

        self.push_screen(Choose("Earlier messages", said, empty="There are no earlier messages."), take)

    def action_sessions(self) -> None:
        """Choose a conversation to continue."""
        self._start(self._choose_session, group="choose", exclusive=True)

    async def _choose_session(self) -> None:
        try:
            sessions = await self._host.sessions()
        except SatchelError as error:
            self._tell(f"△ {error}", "warn")
            return
        lines = [
            f"{each.last_at.astimezone():%Y-%m-%d %H:%M}  {counted(each.turns, 'turn'):>9}"
            f"  {each.id[:12]}  {each.title}"
            for each in sessions
        ]

        def take(number: int | None) -> None:
            if number is not None:
                self._start(partial(self._switch, sessions[number].id), group="work")

        self.push_screen(Choose("Conversations", lines, empty="There are none yet."), take)

    async def _choose_message(self) -> None:
        try:
            exchanges = [*reversed(await self._host.exchanges(self.session, _MOST_TURNS))]
        except SatchelError as error:
            self._tell(f"△ {error}", "warn")
            return

        def choose_files(number: int | None) -> None:
            if number is None:
                return
            turn = exchanges[number].turn

            def go(choice: int | None) -> None:
                if choice is not None:
                    rest = f"{turn} files" if choice else str(turn)
                    self._tell(f"/rewind {rest}", "dim")
                    self._work = self._start(partial(self._command, COMMANDS["rewind"], rest), group="work")

            what = ["the conversation alone", "also the files that tools changed since"]
            self.push_screen(Choose("Go back", what, empty=""), go)

        said = [f"{each.turn:>4}  {each.said}" for each in exchanges]
        self.push_screen(Choose("Go back to before", said, empty="Nothing was said yet."), choose_files)

    async def _switch(self, id: str) -> None:
        try:
            await self._change(SessionChange(session_id=id))
        except SatchelError as error:
            self._tell(f"△ {error}", "warn")


_NAME: Final = "terminal"
