"""`satchel demo`: a guided tour of the real program, in a temporary home."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

import anyio
import click

from satchel.capabilities import Draft, Provenance, Wanted
from satchel.cli.memory import memory_line
from satchel.cli.opening import opened
from satchel.cli.output import say
from satchel.cli.settings import read_settings
from satchel.cli.view import TurnView
from satchel.config import Settings, load, process_environ
from satchel.errors import NoSandbox
from satchel.runtime import Satchel, Session
from satchel.runtime.lines import receipt_lines

_SAID = "My sister Mara is allergic to shellfish."
_ASKED = "What should I keep in mind when I cook for Mara?"
_OTHER = "How tall is the Eiffel Tower?"
_CORRECTED = "My sister Mara is allergic to shellfish and to walnuts."
_TOOL = "portions"
_CODE = """\
def run(args: dict) -> str:
    grams = round(args["guests"] * 90)
    return f"{grams} g of rice for {args['guests']} guests"
"""
_CASES = """\
{"name": "four", "input": {"guests": 4}, "expect": {"equals": "360 g of rice for 4 guests"}}
{"name": "nobody said how many", "input": {}, "expect": {"error": "guests"}}
"""


@click.command()
def demo() -> None:
    """Show in a few seconds how Satchel remembers, recalls, corrects, acts, makes a tool and forgets.

    It needs no key and leaves nothing behind.
    """
    models = read_settings().home / "models"
    with tempfile.TemporaryDirectory(prefix="satchel-demo-") as folder:
        home, work = Path(folder) / "home", Path(folder) / "work"
        home.mkdir(mode=0o700)
        work.mkdir()
        if models.is_dir():
            (home / "models").symlink_to(models)
        environ = {
            name: value for name, value in process_environ().items() if not name.startswith("SATCHEL_")
        }
        settings = load(
            environ,
            cwd=work,
            home=home,
            # A demo should not download 90 MB; searching by words alone is enough for it.
            overrides={"model": "none", "memory.embedder": None if models.is_dir() else "none"},
        )
        anyio.run(_demo, settings)


async def _demo(settings: Settings) -> None:
    view = TurnView(
        text_out=sys.stdout,
        notes_out=sys.stdout,
        environ=process_environ(),
        monotonic_s=lambda: 0.0,
        with_usage=False,
    )

    def title(text: str) -> None:
        view.note(text, "bold", wraps=True)

    async with opened(settings) as satchel:
        title("1. Remember. You say something, and leave.")
        session = await satchel.session()
        await _say(session, _SAID, view)
        await session.aclose("left")

        title("\n2. Recall. Another day, another conversation. Without a language model, Satchel quotes.")
        session = await satchel.session()
        await _say(session, _ASKED, view)
        view.note("   What is not relevant is not mentioned:", "dim")
        await _say(session, _OTHER, view)

        title("\n3. Correct. What has changed is changed in the store; the history keeps what it was.")
        await _correct(satchel, view)
        await session.aclose("left")
        session = await satchel.session()
        await _say(session, _ASKED, view)

        title("\n4. Act. You run tools with /run; a language model would call them itself.")
        await _run(session, "file_write", {"path": "menu.md", "content": "Risotto, no shellfish\n"}, view)
        await _run(session, "bash", {"command": "cat menu.md && wc -w menu.md"}, view)

        title(
            "\n5. Make a tool. A language model would write it; this one is written in the demo. It is tested "
            "before it is used, and runs in a sandbox."
        )
        await _make_tool(satchel, view)

        title("\n6. Forget. The words are removed from the store, the index and the conversation log.")
        await _forget(satchel, view)
        await session.aclose("left")
        session = await satchel.session()
        await _say(session, _ASKED, view)
        await session.aclose("left")
    title(
        "\nThat was the real program, in a temporary folder that is deleted now. Type `satchel` to start your own."
    )


async def _say(session: Session, text: str, view: TurnView) -> None:
    say(f"› {text}")
    async for event in session.stream(text):
        view.show(event)
    view.finish()


async def _run(session: Session, tool: str, input: dict[str, str], view: TurnView) -> None:
    result = await session.run_tool(tool, input, show=view.show)
    say(result.text.rstrip())


async def _correct(satchel: Satchel, view: TurnView) -> None:
    if satchel.memory is None:
        view.note("Memory could not be opened (see above).", "red")
        return
    for record in await satchel.memory.list():
        if record.content == _SAID:
            await satchel.memory.edit(record.id, content=_CORRECTED)
            say(memory_line(await satchel.memory.get(record.id)))


async def _make_tool(satchel: Satchel, view: TurnView) -> None:
    parts = satchel.capabilities
    if parts is None:
        view.note("Capabilities could not be opened (see above).", "red")
        return
    draft = Draft(
        code=_CODE,
        description="How much rice a number of guests needs.",
        input_schema={
            "type": "object",
            "properties": {"guests": {"type": "integer"}},
            "required": ["guests"],
        },
        cases=_CASES,
    )
    say(_CODE.rstrip())
    try:
        await parts.catalogue.request(Wanted(name=_TOOL, description=draft.description))
        await parts.registrar.register(_TOOL, draft, provenance=Provenance(model="demo"))
        ran = await parts.runner.run(_TOOL, {"guests": 6})
    except NoSandbox as error:
        view.note(f"Capabilities can't run here: {error}", "red")
        return
    say(f"2 cases passed. {_TOOL}(guests=6) = {ran.result}")


async def _forget(satchel: Satchel, view: TurnView) -> None:
    if satchel.memory is None:
        view.note("Memory could not be opened (see above).", "red")
        return
    records = [record for record in await satchel.memory.list() if "shellfish" in record.content]
    for record in records:
        say(memory_line(record))
    say("\n".join(receipt_lines(await satchel.forget([record.id for record in records]))))
