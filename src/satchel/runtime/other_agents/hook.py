"""Handles one event of another agent's hook: what the agent is told, and what is queued for capture.

A server that keeps memory open is asked; see `answering`. The agent waits for the answer, so nothing here may delay it
or make it fail: every wait has a bound, every failure is a line in SATCHEL_HOME/logs/hook.log, and the answer is empty
then. Modules that take long to load (SQLAlchemy, numpy, pydantic, dataclasses) are not imported on this way;
`benchmarks/hook.py` measures it.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, NamedTuple

from satchel.clock import Clock
from satchel.config.brief import BriefSettings, read_brief
from satchel.config.home import ensure_home, home_of
from satchel.errors import NotFound, SandboxError, SatchelError, StorageError, UsageError
from satchel.runtime.other_agents.notebook import (
    AgentConversation,
    queue,
    read_conversation,
    write_conversation,
)
from satchel.runtime.other_agents.payloads import HookEvent, read_event
from satchel.runtime.serving import Serving, read_token, serving

_SERVER_S: Final = 2.0
"""How long the server may take for an answer."""
_STARTS_S: Final = 4.0
"""How long a server may take to start, beside that. `connect` lets agents wait ten seconds."""
_POKE_S: Final = 1.0
_MOST_TOKENS: Final = 2_400
"""The most tokens of one answer. Claude Code shows up to 10,000 characters in full, and a preview of more."""
_LOG_BYTES: Final = 1 << 20
_COMMAND: Final = re.compile(r"\s*/[\w:-]+(?:\s|\Z)")
"""A command of the agent's own, which no model reads."""

_WITH_TRANSCRIPT: Final = ("claude-code", "codex")
_TELLS_NOTHING: Final = ("goose",)
"""Agents whose hooks can't add to the conversation: goose only logs their output."""
_NO_SERVER: Final = (
    "Satchel: no server is running and memory.worker is off, so nothing is recalled here. `satchel serve` or `satchel "
    "service install` starts one."
)


class Told(NamedTuple):
    """The text for the model, and the ids of its memories."""

    text: str = ""
    ids: tuple[str, ...] = ()


def answer_hook(raw: bytes, *, environ: Mapping[str, str], cwd: Path, clock: Clock) -> str:
    """Handle one event. `raw` is the payload, as it came on stdin.

    Returns:
        What the agent reads on stdout; "" where there is nothing to say, or anything failed.
    """
    home: Path | None = None
    what = "a payload"
    try:
        home = home_of(environ, cwd)
        event = read_event(raw)
        what = f"{event.dialect} {event.raw_name}"
        hook = _Hook(event, _settings(environ, event, cwd), environ=environ, clock=clock)
        return hook.answer()
    # A boundary: a failure here must not make the other agent fail.
    except Exception as error:  # noqa: BLE001
        _log(home, clock, f"{what}: {_reason(error)}")
        return ""


def _settings(environ: Mapping[str, str], event: HookEvent, cwd: Path) -> BriefSettings:
    place = Path(event.cwd) if event.cwd.startswith("/") and Path(event.cwd).is_dir() else cwd
    brief = read_brief(environ, cwd=place)
    if not brief.in_full:
        return brief
    # A project with settings: only loading all settings shows whether the user trusts it.
    from satchel.config.loading import load  # noqa: PLC0415

    settings = load(environ, cwd=place)
    memory = settings.memory
    return brief._replace(
        enabled=memory.enabled,
        capture=memory.capture,
        budget_tokens=memory.budget_tokens,
        worker=memory.worker == "auto",
    )


class _Hook:
    """The handling of one event."""

    def __init__(
        self, event: HookEvent, settings: BriefSettings, *, environ: Mapping[str, str], clock: Clock
    ) -> None:
        self._event = event
        self._settings = settings
        self._environ = environ
        self._clock = clock
        self._home = settings.home
        self._server: Serving | None = None
        self._is_known = False

    def answer(self) -> str:
        event = self._event
        if not self._settings.enabled or event.is_subagents or not event.name:
            return ""
        if not event.session:
            raise UsageError("the payload has no session_id")
        match event.name:
            case "start":
                return self._start()
            case "prompt":
                return self._prompt()
            case "compact":
                # The compaction removed what was shown, so it may be shown again.
                known = read_conversation(self._home, event.key)
                self._remember(known._replace(shown=(), has_standing=False))
            case _:
                pass
        self._capture()
        return ""

    def _start(self) -> str:
        event = self._event
        known = read_conversation(self._home, event.key)
        if event.source == "fork":
            # The conversation continues in a copy, which contains everything that it was shown.
            self._remember(known._replace(has_standing=True))
            return ""
        if event.source == "resume" and known.has_standing:
            return ""
        if event.dialect in ("hermes", *_TELLS_NOTHING):
            return ""  # Hermes ignores this answer; it gets the profile with the first prompt.
        told = self._standing()
        self._remember(AgentConversation(event.key, told.ids, bool(told.text), known.turn))
        return self._worded(told.text, note="" if self._server or self._settings.worker else _NO_SERVER)

    def _prompt(self) -> str:
        event = self._event
        known = read_conversation(self._home, event.key)
        known = known._replace(turn=known.turn + 1)
        text = ""
        if event.dialect not in _TELLS_NOTHING and event.is_users and event.prompt.strip():
            standing = Told() if known.has_standing else self._standing()
            shown = (*known.shown, *standing.ids)
            told = Told() if _COMMAND.match(event.prompt) else self._bearing(shown)
            known = known._replace(
                shown=(*shown, *told.ids), has_standing=known.has_standing or bool(standing.text)
            )
            text = "\n".join(filter(None, (standing.text, told.text)))
        self._remember(known)
        if event.is_users and event.dialect not in _WITH_TRANSCRIPT:
            self._capture_words("user", event.prompt, known.turn, 0)
        return self._worded(text)

    def _standing(self) -> Told:
        """The page or the profile, and the agenda."""
        return _standing_of(self._ask("GET", "/api/profile?agent=true"))

    def _bearing(self, shown: tuple[str, ...]) -> Told:
        """The memories that are relevant to the prompt."""
        found = self._ask(
            "POST",
            "/api/context",
            {
                "messages": [{"role": "user", "content": self._event.prompt}],
                "budget_tokens": max(1, min(self._settings.budget_tokens, _MOST_TOKENS // 2)),
                "session": self._event.key,
                "exclude": list(shown),
                "agent": True,
            },
        )
        return Told(str(found.get("text", "")), tuple(str(one["id"]) for one in found.get("memories", ())))

    def _ask(self, method: str, path: str, body: Mapping[str, Any] | None = None) -> Mapping[str, Any]:
        """Ask the server. Without one, or where it fails, the answer is empty, and it is not asked again."""
        from satchel.runtime.other_agents.answering import answering_server  # noqa: PLC0415

        if not self._is_known:
            self._is_known = True
            until = self._clock.monotonic_s() + _STARTS_S
            try:
                self._server = answering_server(
                    self._home,
                    self._environ,
                    may_start=self._settings.worker and self._has_memory(),
                    left_s=lambda: until - self._clock.monotonic_s(),
                )
            except (SandboxError, OSError) as error:
                self._note(_reason(error))
            if self._server is None:
                self._note("no server answers; logs/memory-answer.log may say why")
        if self._server is None:
            return {}
        try:
            found = self._send(self._server, method, path, body, limit_s=_SERVER_S)
            if not isinstance(found, dict):
                raise StorageError(f"the server at {self._server.url} answered with something else")
        except SatchelError as error:
            self._note(str(error))
            self._server = None
            return {}
        return found

    def _has_memory(self) -> bool:
        database = self._settings.database
        return self._home.is_dir() and (database is None or database.exists())

    def _send(
        self,
        server: Serving,
        method: str,
        path: str,
        body: Mapping[str, Any] | None = None,
        *,
        limit_s: float,
    ) -> Any:
        from satchel.runtime.other_agents.asking import ask  # noqa: PLC0415

        token = read_token(self._home)
        if token is None:
            raise NotFound("there is no token for the server")
        until = self._clock.monotonic_s() + limit_s
        return ask(server.url, token, method, path, body, left_s=lambda: until - self._clock.monotonic_s())

    def _capture(self) -> None:
        event = self._event
        if not self._settings.keeps_memory:
            return
        if event.dialect not in _WITH_TRANSCRIPT:
            if event.name == "stop":
                known = read_conversation(self._home, event.key)
                self._capture_words("assistant", event.answer, max(known.turn, 1), 1)
            return
        path = Path(event.transcript)
        if not event.transcript or not path.is_absolute():
            raise UsageError("the payload has no transcript_path, so this turn is not captured")
        if not path.is_file():
            raise NotFound(f"there is no transcript {path}, so this turn is not captured")
        ensure_home(self._home)
        queue(
            self._home,
            event.key,
            {"key": event.key, "dialect": event.dialect, "transcript": str(path), "cwd": event.cwd},
        )
        self._hand_over()

    def _capture_words(self, role: str, text: str, turn: int, position: int) -> None:
        """Queue a message of an agent that keeps no transcript."""
        if not self._settings.keeps_memory or not text.strip():
            return
        from satchel.memory.store.redaction import redact, strip_private  # noqa: PLC0415

        words = redact(strip_private(text)).strip()
        if not words:
            return
        event = self._event
        ensure_home(self._home)
        queue(
            self._home,
            f"{event.key} {turn} {position}",
            {
                "key": event.key,
                "dialect": event.dialect,
                "cwd": event.cwd,
                "turn": turn,
                "position": position,
                "role": role,
                "text": words,
                "said_at": self._clock.now().isoformat(),
            },
        )
        if self._event.name != "prompt":
            self._hand_over()

    def _hand_over(self) -> None:
        """Have the queue captured, by the server or by a background process."""
        server = serving(self._home)
        if server is not None:
            try:
                self._send(server, "POST", "/api/observe/queued", limit_s=_POKE_S)
                return
            except SatchelError as error:
                self._note(f"{error}; a background process captures the queue")
        self._leave_work()

    def _leave_work(self) -> None:
        if not self._settings.worker:
            self._note(
                "queued: memory.worker is off, so `satchel memory work` or `satchel serve` captures it"
            )
            return
        from satchel.runtime.memory_work import leave_work_of  # noqa: PLC0415

        if not self._home.is_dir():
            return
        if not leave_work_of(self._home, self._environ):
            self._note("queued: the process that captures it could not be started; the next one takes it")

    def _remember(self, known: AgentConversation) -> None:
        if not self._home.is_dir():
            return
        try:
            write_conversation(self._home, known)
        except SatchelError as error:
            self._note(f"{error} A memory may be shown twice.")

    def _worded(self, text: str, *, note: str = "") -> str:
        """The answer in the agent's dialect."""
        if not text and not note:
            return ""
        match self._event.dialect:
            case "claude-code" | "codex":
                answer: dict[str, Any] = {}
                if text:
                    answer["hookSpecificOutput"] = {
                        "hookEventName": self._event.raw_name,
                        "additionalContext": text,
                    }
                if note:
                    answer["systemMessage"] = note
                return json.dumps(answer, ensure_ascii=False) + "\n"
            case "hermes":
                return json.dumps({"context": text}, ensure_ascii=False) + "\n" if text else ""
            case "letta":
                return f"{text}\n" if text else ""
            case "goose":
                return ""

    def _note(self, words: str) -> None:
        _log(self._home, self._clock, f"{self._event.dialect} {self._event.raw_name}: {words}")


def _standing_of(found: Mapping[str, Any]) -> Told:
    agenda = found.get("agenda") or {}
    lines = [*found.get("lines", ()), *agenda.get("lines", ())]
    more = [id for line in found.get("lines", ()) for id in line.get("facts", ())]
    ahead = str(agenda.get("text", "")) if agenda.get("lines") else ""
    text = "\n".join(filter(None, (str(found.get("text", "")), ahead)))
    return Told(text, tuple(dict.fromkeys(map(str, (*(line["id"] for line in lines), *more)))))


def _reason(error: Exception) -> str:
    """The reason of a failure, for the log. Only messages that can't quote the conversation are included."""
    return str(error) if isinstance(error, SatchelError) else type(error).__name__


def _log(home: Path | None, clock: Clock, line: str) -> None:
    """Append a line to the log, as far as that is possible."""
    if home is None or not home.is_dir():
        return
    path = home / "logs" / "hook.log"
    with suppress(OSError, SatchelError):
        ensure_home(path.parent)
        with suppress(FileNotFoundError):
            if path.stat().st_size > _LOG_BYTES:
                path.replace(path.with_suffix(".log.1"))
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW
        descriptor = os.open(path, flags, 0o600)
        with os.fdopen(descriptor, "wb") as file:
            plain = "".join(char if char.isprintable() else " " for char in line)[:2_000]
            file.write(f"{clock.now():%Y-%m-%dT%H:%M:%S%z} {plain}\n".encode("utf-8", "replace"))
