"""`satchel memory distill`: extract facts from conversations, and show the progress."""

from __future__ import annotations

import sys
from collections.abc import Mapping

import anyio
import click

from satchel.cli.commands import json_option, said_json
from satchel.cli.opening import opened
from satchel.cli.output import is_terminal, say, tell
from satchel.cli.settings import read_settings
from satchel.cli.stores import with_memory
from satchel.config import Settings
from satchel.errors import ModelUnavailable
from satchel.memory import DistillReport, DistillStatus, MemoryRecord, WindowResult
from satchel.memory.distill.records import status_to_json
from satchel.messages import Usage
from satchel.plain import as_json
from satchel.runtime.lines import counted

_OUTCOMES = {
    "facts": "with facts",
    "nothing": "without facts",
    "failed": "failed",
    "given_up": "given up",
}


@click.command()
@click.option(
    "--status", is_flag=True, help="Show what is pending, what failed and what it cost; extract nothing."
)
@click.option("--once", is_flag=True, help="Read one window, such as the conversations of a day, and stop.")
@json_option
def distill(status: bool, once: bool) -> None:
    """Extract facts from messages that have not been read for them yet.

    A model proposes facts, from long conversations only where a small one finds a passage worth reading. A fact whose
    quote was not said is dropped. While Satchel is open this runs in the background (memory.distill) when a day is
    over; this command reads at once. An interrupted run resumes where it stopped.
    """
    settings = read_settings()
    if status:
        found = with_memory(lambda memory: memory.distill_status())
        if not said_json({**status_to_json(found), "mode": settings.memory.distill}):
            say(_status_text(found, settings))
        return
    # The command itself does the work of the background task.
    report, records = anyio.run(_distill, read_settings({"memory.distill": "off"}), once)
    if not said_json({**as_json(report), "facts": report.facts}):
        for record in records.values():
            say(f"{record.id}  {record.content}")
        tell(_report_text(report))
    if report.stopped and not once:
        raise ModelUnavailable(report.stopped)


async def _distill(settings: Settings, once: bool) -> tuple[DistillReport, Mapping[str, MemoryRecord]]:
    line = _Progress()
    async with opened(settings) as satchel:
        report = await satchel.distilling.run(most_windows=1 if once else None, progress=line)
        wanted = report.facts
        records = {
            id: await memory.get(id)
            for memory in await satchel.home.memories()
            for id in await memory.known(wanted)
        }
    return report, records


class _Progress:
    """Reports each window on a terminal when it has been read."""

    def __init__(self) -> None:
        self._is_terminal = is_terminal(sys.stderr)

    def __call__(self, window: WindowResult) -> None:
        if not self._is_terminal:
            return
        read = "; ".join(
            f"session {session}, {f'turn {first}' if first == last else f'turns {first} to {last}'}"
            for session, (first, last) in window.turns.items()
        )
        came = {
            "facts": f"{len(window.facts)} new, {len(window.confirmed)} known",
            "nothing": f"nothing ({window.reason or 'no reason given'})",
        }.get(window.outcome, f"{window.outcome.replace('_', ' ')}: {window.error}")
        tell(f"{read}: {came}")
        for reason in window.dropped:
            tell(f"  proposal dropped: {reason}")


def _report_text(report: DistillReport) -> str:
    if not report.windows:
        if report.pending and not report.stopped:
            return f"Another process is reading the pending messages ({report.pending})."
        return report.stopped or "Nothing is pending: all messages have been read."
    confirmed = sum(len(window.confirmed) for window in report.windows)
    dropped = sum(len(window.dropped) for window in report.windows)
    text = f"{counted(len(report.windows), 'window')} read, {counted(len(report.facts), 'fact')} stored"
    text += f", {confirmed} confirmed" if confirmed else ""
    text += f", {counted(dropped, 'proposal')} dropped" if dropped else ""
    text += f"; {_cost(report.usage)}"
    return text + (f"; {counted(report.pending, 'message')} pending" if report.pending else "") + "."


def _status_text(status: DistillStatus, settings: Settings) -> str:
    since = (
        f" of {counted(status.conversations, 'conversation')}, since {status.waiting_since.astimezone():%Y-%m-%d %H:%M}"
        if status.waiting_since is not None
        else ""
    )
    off = "background.models" if settings.background.models == "off" else "memory.distill"
    mode = (
        "in the background when a day is over, "
        f"or a conversation has {counted(settings.memory.distill_every, 'unread message')}"
        if settings.background.models == settings.memory.distill == "auto"
        else f"only by `satchel memory distill` ({off} = off)"
    )
    windows = (
        ", ".join(f"{count} {_OUTCOMES.get(name, name)}" for name, count in status.windows.items()) or "none"
    )
    last = f"{status.last_at.astimezone():%Y-%m-%d %H:%M}" if status.last_at is not None else "never"
    lines = [
        f"runs      {mode}",
        f"pending   {counted(status.pending, 'message')}{since}",
        f"read      {counted(status.read, 'message')}, last {last}",
        f"facts     {status.facts}",
        f"windows   {windows}",
        f"cost      {_cost(status.usage)}",
    ]
    if status.trouble:
        lines.append(f"error     {status.trouble} ({counted(status.failed_since, 'attempt')})")
    return "\n".join(lines)


def _cost(usage: Usage) -> str:
    money = "cost unknown" if usage.cost_usd is None else f"${usage.cost_usd:.4f}"
    return f"{counted(usage.input_tokens, 'token')} in, {usage.output_tokens:,} out, {money}"
