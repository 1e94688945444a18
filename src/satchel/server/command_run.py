"""A `/` command that a client of the server runs, as a stream of events."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from typing import Any, Final

import anyio

from satchel.errors import SatchelError
from satchel.events import Event, event_to_json
from satchel.runtime.commands import CommandContext, SlashCommand, result_to_json, run_command
from satchel.server.problems import problem_of
from satchel.server.service import Service
from satchel.server.streams import ServerEvent

_MOST_WAITING: Final = 1000
"""The most events that wait for a slow client. Further ones are dropped; the session's own stream has them too."""


class CommandRun:
    """One run of a command. It ends with its reader."""

    def __init__(
        self, service: Service, session_id: str, command: SlashCommand, rest: str, *, confirmed: bool
    ) -> None:
        """`session_id` is the full id, and `rest` what follows the command's name."""
        self._service = service
        self._session_id = session_id
        self._command = command
        self._rest = rest
        self._confirmed = confirmed
        self._scope = anyio.CancelScope()
        self._send, self._receive = anyio.create_memory_object_stream[ServerEvent](_MOST_WAITING)

    async def events(self) -> AsyncGenerator[ServerEvent, None]:
        """Run the command. Closing this early interrupts it."""
        # It runs in a separate task, because a generator can't hold the cancel scope.
        self._service.satchel.parts.background.start(self._run)
        try:
            async for event in self._receive:
                yield event
        finally:
            self._scope.cancel()
            self._receive.close()

    async def _run(self) -> None:
        with self._scope, self._send:
            try:
                last = ServerEvent(name="result", data=await self._done())
            except SatchelError as error:
                last = ServerEvent(name="error", data=problem_of(error))
            await self._send.send(last)

    async def _done(self) -> dict[str, Any]:
        async with self._service.sessions.used(self._session_id, keeps_empty=True) as session:
            context = CommandContext(
                satchel=self._service.satchel, session=session, show=self._show, tell=self._tell
            )
            result = await run_command(context, self._command, self._rest)
            if self._confirmed and result.confirm is not None:
                result = await result.confirm.proceed()
            return result_to_json(result)

    def _show(self, event: Event) -> None:
        self._put(ServerEvent(name="event", data=event_to_json(event)))

    def _tell(self, text: str) -> None:
        self._put(ServerEvent(name="tell", data={"text": text}))

    def _put(self, event: ServerEvent) -> None:
        try:
            self._send.send_nowait(event)
        except (anyio.WouldBlock, anyio.BrokenResourceError):
            return
