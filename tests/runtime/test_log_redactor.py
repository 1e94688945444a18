"""What is marked as private, and what is secret, never reaches the disk; the model sees it while the session is open."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import UnionType
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

import pytest

from satchel.config import trust
from satchel.events import Action, Event, Notice, Permission, TurnStart
from satchel.loop import ToolPool
from satchel.messages import Message, TextBlock
from satchel.models import Call, Reply, ScriptedModel
from satchel.runtime import Satchel
from satchel.runtime.log_redactor import LogRedactor
from tests.memory.labelled_secrets import ANTHROPIC
from tests.requirements import requirement
from tests.runtime.world import opened, run_answered

pytestmark = pytest.mark.anyio

PRIVATE_WORDS = "seriously 'ill'"


def bytes_on_disk(folder: Path) -> bytes:
    return b"\n".join(path.read_bytes() for path in sorted((folder / "home").rglob("*")) if path.is_file())


async def memories_of(satchel: Satchel) -> list[str]:
    assert satchel.memory is not None
    return [record.content for record in await satchel.memory.list()]


@requirement("memory:capture:private-turn", "memory:capture:redacted")
async def test_private_parts_and_secrets_reach_the_model_and_never_the_disk(tmp_path: Path) -> None:
    model = ScriptedModel(
        [
            Reply(calls=[Call(name="bash", input={"command": f"echo {ANTHROPIC}"})], thinking=ANTHROPIC),
            f"Done with {ANTHROPIC}. I won't tell that you are seriously ill.",
            "Again.",
        ]
    )
    said = f"Use {ANTHROPIC}, please. <private>seriously ill</private>"
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session()
        await session.run_turn(said)
        assert model.requests[0].messages[-1].text == said
        assert await memories_of(satchel) == [
            "Done with [redacted:anthropic-key]. I won't tell that you are .",
            "Use [redacted:anthropic-key], please. ",
        ]
    on_disk = bytes_on_disk(tmp_path)
    assert ANTHROPIC.encode() not in on_disk
    assert b"seriously ill" not in on_disk
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(session.id)
        await session.run_turn("And now?")
    assert model.requests[-1].messages[0].text == "Use [redacted:anthropic-key], please. [private]"


@requirement("memory:capture:redacted")
async def test_who_switches_redaction_off_keeps_the_words_and_private_parts_stay_private(
    tmp_path: Path,
) -> None:
    async with opened(tmp_path, ScriptedModel(["Yes."]), memory__redact=False) as satchel:
        session = await satchel.session()
        await session.run_turn("My PIN is 4921. <private>seriously ill</private>")
        assert await memories_of(satchel) == ["Yes.", "My PIN is 4921. "]
    on_disk = bytes_on_disk(tmp_path)
    assert (b"4921" in on_disk, b"seriously ill" in on_disk) == (True, False)


@requirement("memory:capture:off")
async def test_a_trusted_project_switches_capture_off_for_its_folder(tmp_path: Path) -> None:
    settings = tmp_path / "work" / ".satchel" / "config.toml"
    settings.parent.mkdir(parents=True)
    settings.write_text("[memory]\ncapture = false\n")
    for trusted, kept in ((False, ["Yes.", "One."]), (True, ["Yes.", "One."])):
        if trusted:
            trust(tmp_path / "home", tmp_path / "work")
        async with opened(tmp_path, ScriptedModel(["Yes."])) as satchel:
            session = await satchel.session()
            await session.run_turn("Two." if trusted else "One.")
            assert await memories_of(satchel) == kept


# ---- Every event, every field


def filled(hint: Any, text: str) -> Any:
    """A value of a type that holds a text wherever the type allows one."""
    origin, arguments = get_origin(hint), get_args(hint)
    if hint is str:
        return text
    if hint in (int, float, bool):
        return hint(1)
    if hint is datetime:
        return datetime(2026, 3, 4, tzinfo=UTC)
    if hint is Any or (origin is not None and origin not in (Union, UnionType, Literal, tuple)):
        return {"deep": [{"er": text}], text: 1}
    if origin is Literal:
        return arguments[0]
    if origin is tuple:
        return (filled(arguments[0], text),)
    if origin in (Union, UnionType):
        return filled(next(argument for argument in arguments if argument is not type(None)), text)
    hints = get_type_hints(hint)
    return hint(**{field.name: filled(hints[field.name], text) for field in fields(hint)})


def texts_in(value: Any, place: str = "") -> Iterator[tuple[str, str]]:
    """Every text in a value, with the fields that lead there."""
    if isinstance(value, str):
        yield place, value
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield place, str(key)
            yield from texts_in(item, place)
    elif isinstance(value, tuple | list):
        for item in value:
            yield from texts_in(item, place)
    elif is_dataclass(value):
        for field in fields(value):
            yield from texts_in(getattr(value, field.name), f"{place}.{field.name}")


NOT_CLEANED = {
    # Identifiers, by which a log is read again, and what memory gave, which holds no secret.
    "session_start": {".session_id", ".cwd", ".provider", ".model", ".version", ".project"},
    "session_filed": {".project"},
    "turn_start": {".answers"},
    "memory_surfaced": {
        ".text",
        ".memories.id",
        ".memories.content",
        ".memories.session",
    },
    "memory_captured": {".ids"},
    "assistant": {".provider", ".model"},
    "observation": {".spill"},
    "error": {".error"},
    # Filled with a `session_start`.
    "sub_agent": {
        ".call_id",
        ".event.session_id",
        ".event.cwd",
        ".event.provider",
        ".event.model",
        ".event.version",
        ".event.project",
    },
}


@requirement("sessions:redacted:every-field")
@pytest.mark.parametrize("cls", get_args(Event), ids=lambda cls: cls.type)
@pytest.mark.parametrize("said", [f"Use {ANTHROPIC}.", "You are seriously  ILL."])
async def test_no_text_of_any_event_reaches_the_log_with_a_secret_or_private_words_in_it(
    cls: type[Any], said: str
) -> None:
    pool = ToolPool(1)
    redactor = LogRedactor(redacts=True, pool=pool)
    told = TextBlock(text="<private>seriously ill</private>")
    start = TurnStart(turn=1, message=Message(role="user", blocks=(told,)))
    try:
        [_, event] = await redactor.redacted([start, filled(cls, said)])
    finally:
        pool.close()
    kept = {
        place for place, text in texts_in(event) if "sk-ant" in text or "ill" in text.casefold().split(".")[0]
    }
    ids = {place for place in kept if re.fullmatch(r".*\.(\w+_)?ids?", place)}
    assert kept - ids == NOT_CLEANED.get(cls.type, set()) - ids


@requirement("sessions:redacted:every-field")
@pytest.mark.parametrize(
    ("input", "logged"),
    [
        ({"password": "hunter2!x"}, {"password": "[redacted:password]"}),
        ({"env": [{"api_key": "zq81-krow-3321"}]}, {"env": [{"api_key": "[redacted:key]"}]}),
        ({"n": 4111111111111111}, {"n": "[redacted:card-number]"}),
        ({ANTHROPIC: 1}, {"[redacted:anthropic-key]": 1}),
        ({"count": 3, "path": "src/token.py", "on": True, "x": None}, None),
    ],
)
async def test_an_argument_is_read_together_with_its_name(
    input: dict[str, Any], logged: dict[str, Any] | None
) -> None:
    pool = ToolPool(1)
    action = Action(turn=1, round=1, call_id="c", tool="t", input=input)
    try:
        [event] = await LogRedactor(redacts=True, pool=pool).redacted([action])
    finally:
        pool.close()
    assert isinstance(event, Action)
    assert event.input == (input if logged is None else logged)


@requirement("sessions:redacted:every-field")
@pytest.mark.parametrize(
    "repeated",
    [
        "Seriously 'ill'",
        "seriously\n   'ill'",
        json.dumps({"note": "seriously 'ill'"}),
        f"echo {shlex.quote(chr(34) + PRIVATE_WORDS)}",
        "My plan:\nwire the money on Monday",
    ],
)
async def test_private_words_are_found_however_they_are_quoted(repeated: str) -> None:
    pool = ToolPool(1)
    redactor = LogRedactor(redacts=False, pool=pool)
    told = TextBlock(
        text=f"<private>{PRIVATE_WORDS}</private> <private>First:\nwire the money on Monday\nthen</private>"
    )
    start = TurnStart(turn=1, message=Message(role="user", blocks=(told,)))
    try:
        [_, event] = await redactor.redacted([start, Notice(part="x", text=repeated)])
    finally:
        pool.close()
    assert isinstance(event, Notice)
    assert "[private]" in event.text
    assert "ill" not in event.text.casefold()
    assert "money" not in event.text


@requirement("sessions:redacted:every-field")
async def test_a_rule_with_a_secret_reaches_neither_the_log_nor_the_settings(tmp_path: Path) -> None:
    command = f"curl -H 'x-key: {ANTHROPIC}' http://127.0.0.1:9/ # seriously ill"
    model = ScriptedModel([Reply(calls=[Call(name="bash", input={"command": command})]), "Done."])
    async with opened(tmp_path, model) as satchel:
        session = await satchel.session(interactive=True)
        outcome = await run_answered(session, "Use it. <private>seriously ill</private>", "always")
        records = (await satchel.sessions.load(session.id)).records
    assert outcome.steps[0].result.startswith("[What follows came from outside.")
    [permission] = [record.event for record in records if isinstance(record.event, Permission)]
    assert (permission.decision, permission.by) == ("allow", "user")
    assert "holds for this conversation only" in permission.reason
    on_disk = bytes_on_disk(tmp_path)
    assert ANTHROPIC.encode() not in on_disk
    assert b"seriously ill" not in on_disk


@requirement("sessions:redacted:every-field")
async def test_a_long_result_is_kept_without_private_words(tmp_path: Path) -> None:
    command = "for i in $(seq 3000); do echo seriously ill, line $i; done"
    model = ScriptedModel([Reply(calls=[Call(name="bash", input={"command": command})]), "Done."])
    async with opened(tmp_path, model, agent__mode="bypass") as satchel:
        session = await satchel.session()
        outcome = await session.run_turn("Repeat it. <private>seriously ill</private>")
        assert "seriously ill" in outcome.steps[0].result
    assert b"line 3000" in bytes_on_disk(tmp_path)
    assert b"seriously ill" not in bytes_on_disk(tmp_path)
