"""What a model can do with capabilities: find, request, run and read about them; each active one is a tool of its own.

Context cost does not grow with their number: the prompt has one line for each up to a budget, the tools' definitions
go behind the bridge when they are many (`tools.deferral`), and documents are read on demand.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from functools import partial
from pathlib import Path, PurePosixPath
from typing import Any, Final, Literal, Protocol

from satchel.capabilities.allowances import Rules, no_rules
from satchel.capabilities.catalogue import Catalogue
from satchel.capabilities.files import in_session
from satchel.capabilities.lookup import Lookup
from satchel.capabilities.package import SKILL, Package
from satchel.capabilities.records import CALLED, MCP, Capability, Requested, Wanted, tool_name
from satchel.capabilities.running import BACKGROUND_WALL_S, MOST_WALL_S, Outcome, Runner, outcome_to_json
from satchel.errors import NotFound, StorageError, UsageError
from satchel.messages import FileBlock
from satchel.plain import json_in
from satchel.sandbox.port import Artifact, OnOutput
from satchel.tools.builtin.fence import Fence
from satchel.tools.builtin.jobs import start_job
from satchel.tools.display import Display, ShownResult, any_result
from satchel.tools.function import function_tool
from satchel.tools.kept import keep_seen
from satchel.tools.port import Annotations, Effect, Redirect, Tool, ToolContext, ToolResult, ToolSpec
from satchel.wording import cut_text, one_line

_PREPARATION_S: Final = 120.0
"""What a call may take beyond the run itself: packages may have to be installed first."""
_LINES_CHARS: Final = 2_000
"""Of all lines in the prompt: about 500 tokens, some twenty capabilities."""
_LINE_CHARS: Final = 160
_MOST_TRACEBACK: Final = 1_500
_MOST_DOCUMENT: Final = 100_000
CALL: Final = "call cap_{}, through tool_call if it is not in your list"
"""How a model calls a capability, said in the same words wherever it is said."""
_READ_SKILL: Final = "read it with read_docs before you begin, and do it as it says"
_READS: Final = Annotations(read_only=True, destructive=False, idempotent=True, open_world=False)
_BUILDS: Final = Annotations(read_only=False, destructive=False, idempotent=True, open_world=False)
DISPLAYS: Final[Mapping[str, Display]] = {
    "execute_capability": Display(kind="execute"),
    "lookup_capability": Display(kind="search"),
    "read_docs": Display(kind="read"),
    "request_capability": Display(
        call=lambda input: (
            f"{'Change' if input.get('change') else 'Build'} {input.get('name', '')}: {input.get('description', '')}"
        ),
        result=lambda _, text: _show_requested(text),
    ),
}


class Documents(Protocol):
    """Further documents that `read_docs` reads, such as those of Agent Skills that others wrote."""

    async def read(self, name: str, file: str) -> ToolResult | None:
        """The document `file` ("" for the main one) of `name`; None if there is nothing of that name."""
        ...

    def any(self) -> bool:
        """Whether there is a document."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OwnTool:
    """An active capability as a tool, `cap_<name>`."""

    capability: Capability
    runner: Runner
    fence: Callable[[], Fence]

    @property
    def spec(self) -> ToolSpec:
        """How a model sees it.

        It is confined to what the user approved, so it needs no permission at each call. One with a secret, or a tool
        of an MCP server, acts in the user's name, and is asked about like any tool that changes something.
        """
        capability, access = self.capability, self.capability.access
        return ToolSpec(
            name=capability.tool_name,
            description=f"[Capability] {capability.description}",
            input_schema={**capability.input_schema, "type": "object"},
            returns=capability.output_schema or None,
            source="capability",
            origin=f"capability {capability.name}, version {capability.version}",
            annotations=Annotations(
                read_only=not access,
                destructive=bool(access.secrets) or any(called.startswith(MCP) for called in access.calls),
                idempotent=not access,
                open_world=False,
            ),
            vouched_for=True,
            timeout_s=MOST_WALL_S + _PREPARATION_S,
        )

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        """Its own files, if it keeps some."""
        if not self.capability.access.state:
            return ()
        return (Effect(resource=f"capability:{self.capability.id}", writes=True),)

    async def is_from_outside(self) -> bool:
        """Whether what it says may come from what it reaches, or from whoever wrote it or one that it calls."""
        own = self.capability
        # What these call, it calls itself: a call that reaches further than its caller is refused.
        called = [host.removeprefix(CALLED) for host in own.access.hosts if host.startswith(CALLED)]
        if len(called) < len(own.access.hosts) or own.provenance.made_by == "import":
            return True
        found = [await self.runner.catalogue.find(name) for name in called]
        return any(one is not None and one.provenance.made_by == "import" for one in found)

    async def call(
        self, input: Mapping[str, Any], context: ToolContext, *, in_background: bool = False
    ) -> ToolResult:
        """Run it in a fresh sandbox."""

        async def show(stream: Literal["stdout", "stderr"], piece: bytes) -> None:
            await context.progress({"stream": stream, "text": piece.decode("utf-8", "replace")})

        outcome = await self.runner.run(
            self.capability.id,
            input,
            timeout_s=context.timeout_s,
            on_output=show,
            # Whoever calls without a folder of their own, such as another agent, can name no file.
            read_file=partial(in_session, self.fence(), context) if context.roots else None,
            in_background=in_background,
            session_id=context.session_id,
        )
        parts = [outcome.result or ""] if outcome.ok else _failure(outcome)
        if outcome.status == "timeout" and not in_background:
            parts.append(
                f"If it needs longer: execute_capability with background = true gives it {BACKGROUND_WALL_S:g} s."
            )
        files: tuple[FileBlock, ...] = ()
        if outcome.artifacts:
            folder = context.spill_dir / f"{context.call_id}-files"
            saved = await context.blocking(_save, folder, outcome.artifacts)
            parts.append(f"Files that it made: {', '.join(map(str, saved))}")
            contents = {made.path: made.content for made in outcome.artifacts}
            # Who has no folder here, such as an agent on another machine, can't open what is only named.
            keeping = partial(keep_seen, context.spill_dir, contents, others=not context.roots)
            files = await context.blocking(keeping)
        parts += [f"Not kept: {reason}" for reason in outcome.omitted]
        return ToolResult(
            text="\n".join(part for part in parts if part) or "(no text)",
            is_error=not outcome.ok,
            data=outcome_to_json(outcome),
            untrusted=await self.is_from_outside(),
            files=files,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class _InBackground:
    """A capability whose calls go on after they have returned; a message brings the result."""

    tool: OwnTool

    @property
    def spec(self) -> ToolSpec:
        return self.tool.spec

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        return self.tool.effects(input, context)

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        async def execute(take: OnOutput) -> tuple[str, str]:
            async def show(data: Mapping[str, Any]) -> None:
                await take(data["stream"], data["text"].encode(errors="replace"))

            done = await self.tool.call(input, replace(context, progress=show), in_background=True)
            await take("stdout", f"{done.text}\n".encode(errors="replace"))
            return ("failed" if done.is_error else "has ended"), done.text

        called = f"{self.spec.name} {json.dumps(input, ensure_ascii=False)}"
        try:
            return await start_job(context, called, execute, untrusted=await self.tool.is_from_outside())
        except UsageError as error:
            return ToolResult(text=str(error), is_error=True)


@dataclass(frozen=True, slots=True)
class _Execute:
    """`execute_capability`: stands for the call of the capability's own tool."""

    spec: ToolSpec
    toolset: CapabilityTools

    def redirect(self, input: Mapping[str, Any]) -> Redirect | str:
        tool = self.toolset.active(input["name"])
        if tool is None:
            return (
                f"There is no active capability {input['name'][:80]!r}. lookup_capability finds capabilities and says "
                "what state they are in."
            )
        if tool.spec.name in self.toolset.disabled:
            return f"{tool.capability.name} is not called: {tool.spec.name} is in tools.disabled."
        if input.get("background") and tool.capability.access.state:
            return f"{tool.capability.name} keeps files, so its calls run one after the other: not in the background."
        called = _InBackground(tool=tool) if input.get("background") else tool
        return Redirect(tool=called, input=input.get("input", {}))

    def effects(self, input: Mapping[str, Any], context: ToolContext) -> Sequence[Effect]:
        target = self.redirect(input)
        return target.tool.effects(target.input, context) if isinstance(target, Redirect) else ()

    async def call(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        # Whoever runs calls follows the redirection; a caller that does not know of it gets the same.
        target = self.redirect(input)
        if isinstance(target, str):
            return ToolResult(text=target, is_error=True)
        return await target.tool.call(target.input, context)


class CapabilityTools:
    """The toolset of one user's capabilities."""

    def __init__(
        self,
        catalogue: Catalogue,
        *,
        runner: Runner,
        lookup: Lookup,
        fence: Callable[[], Fence],
        documents: Documents | None = None,
        allowances: Rules = no_rules,
        disabled: Collection[str] = (),
    ) -> None:
        """Read nothing yet.

        Args:
            catalogue: What there is.
            runner: Runs capabilities.
            lookup: Finds them.
            fence: Makes what says which files a call may give to a capability.
            documents: What `read_docs` reads besides.
            allowances: Gives the user's rules; what they deny is not requested.
            disabled: The tools that no model is offered; they are not called by the capability's name either.
        """
        self.disabled = frozenset(disabled)
        self._catalogue = catalogue
        self._runner = runner
        self._lookup = lookup
        self._fence = fence
        self._documents = documents
        self._allowances = allowances
        self._version = -1
        self._active: dict[str, OwnTool] = {}
        self._skills: tuple[Capability, ...] = ()
        self._own: tuple[Tool, ...] = (self._find(), self._request(), self._execute())

    async def tools(self) -> Sequence[Tool]:
        """The four tools, then the active capabilities, oldest first; those known last if the database fails."""
        with suppress(StorageError):
            await self._refresh()
        has_documents = bool(self._active or self._skills) or (
            self._documents is not None and self._documents.any()
        )
        return (*self._own, self._read(is_deferred=not has_documents), *self._active.values())

    async def own(self) -> Sequence[OwnTool]:
        """The active capabilities, oldest first; those known last if the database fails."""
        await self.tools()
        return tuple(self._active.values())

    async def own_skills(self) -> Mapping[str, Package]:
        """The active skills by name, oldest first, as the user has edited them; without those that can't be read."""
        await self.tools()
        found: dict[str, Package] = {}
        for skill in self._skills:
            with suppress(NotFound, StorageError, UsageError):  # `read_docs` says why
                found[skill.name] = await self._catalogue.read(skill)
        return found

    async def read_skill(self, name: str) -> Package | None:
        """An active skill, for another agent that goes by it; None if there is none of this name."""
        package = (await self.own_skills()).get(name)
        if package is not None:
            await self._catalogue.note_read(name)
        return package

    async def inactive(self) -> Sequence[Capability]:
        """The capabilities that can't be used now; none if the database fails."""
        try:
            return await self._catalogue.list("building", "proposed", "failed", "disabled")
        except StorageError:
            return ()

    def active(self, name: str) -> OwnTool | None:
        """The active capability with this name, tool name or id, as known when `tools` was last called."""
        for tool in (self._active.get(name), self._active.get(tool_name(name))):
            if tool is not None:
                return tool
        return next((tool for tool in self._active.values() if tool.capability.id == name), None)

    def lines(self) -> Sequence[str]:
        """One line for each active capability, as known when `tools` was last called, for the prompt, up to a budget;
        then how to find the others.
        """
        offered = [tool.capability for name, tool in self._active.items() if name not in self.disabled]
        offered = sorted((*offered, *self._skills), key=_age)
        used = sorted(offered, key=lambda each: each.reliability.last_run_at or each.created_at, reverse=True)
        lines, left = {}, _LINES_CHARS
        for capability in used:
            how = f"(a skill: {_READ_SKILL}) " if capability.is_skill else ""
            line = f"{capability.name}: {how}{one_line(capability.description, _LINE_CHARS)}"
            if len(line) > left:
                break
            lines[capability.name] = line
            left -= len(line)
        # In the order of the tools, which only grows at its end: the prompt stays the same where it can.
        shown = [lines[each.name] for each in offered if each.name in lines]
        more = len(offered) - len(shown)
        return [*shown, f"and {more:,} more, which lookup_capability and tool_search find"] if more else shown

    async def _refresh(self) -> None:
        version = await self._catalogue.version()
        if version == self._version:
            return
        active = sorted(await self._catalogue.list("active"), key=_age)
        self._skills = tuple(each for each in active if each.is_skill)
        self._active = {
            capability.tool_name: OwnTool(capability=capability, runner=self._runner, fence=self._fence)
            for capability in active
            if not capability.is_skill
        }
        self._version = version

    # ---- The four tools

    def _find(self) -> Tool:
        async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
            query = str(input.get("query") or input.get("name") or "")
            answer = await self._answer(query, limit=input.get("limit", 5))
            return ToolResult(text=json.dumps(answer, ensure_ascii=False), data=answer)

        return function_tool(
            call,
            name="lookup_capability",
            description="Look for a capability, a tool that was built earlier, by its name or by what it is for. Do "
            'this before you request one. Gives {"found": false}, or the best match with id, name, description, status '
            f"and input_schema, and the names of others that fit. An active one: {CALL.format('<name>')}.",
            properties={
                "query": {"type": "string", "minLength": 1, "description": "A name, or what is to be done"},
                "name": {"type": "string", "minLength": 1, "description": "The same as query"},
                "limit": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 20,
                    "description": "At most (default 5)",
                },
            },
            annotations=_READS,
            is_deferred=True,
        )

    async def _answer(self, query: str, *, limit: int) -> dict[str, Any]:
        found = await self._lookup.search(query, limit=limit) if query.strip() else ()
        if not found:
            found = await self._lookup.search(
                query, limit=limit, statuses=("building", "proposed", "disabled")
            )
        exact = await self._catalogue.find(query.strip())
        if exact is not None and (not found or found[0].capability.id != exact.id):
            return {"found": True, **_described(exact), "others": [each.capability.name for each in found]}
        if not found:
            return {"found": False}
        return {
            "found": True,
            **_described(found[0].capability),
            "others": [each.capability.name for each in found[1:]],
        }

    def _request(self) -> Tool:
        async def call(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
            wanted = Wanted(
                name=input["name"],
                description=input["description"],
                input_schema=input.get("input_schema", {}),
            )
            (await self._allowances()).check(wanted.name)
            if input.get("change"):
                changed = await self._catalogue.rebuild(wanted.name)
                answer = _changing(changed, wish=wanted.description)
                return ToolResult(text=json.dumps(answer, ensure_ascii=False), data=answer)
            similar = None if input.get("distinct") else await self._lookup.similar(wanted)
            requested = await self._catalogue.request(
                wanted, session_id=context.session_id, similar_id="" if similar is None else similar.id
            )
            answer = _requested(requested, session_id=context.session_id)
            return ToolResult(text=json.dumps(answer, ensure_ascii=False), data=answer)

        return function_tool(
            call,
            name="request_capability",
            description="Have a new tool built in the background, for what none of your tools does and the user may "
            "want again, such as a format, protocol or calculation that they describe: request it before you write "
            "code. `change` = true changes or repairs a capability. Say so and go on: a message tells when it is "
            "ready.",
            properties={
                "name": {
                    "type": "string",
                    "pattern": "^[a-z][a-z0-9_]{0,59}$",
                },
                "description": {
                    "type": "string",
                    "minLength": 1,
                    "maxLength": 4000,
                    "description": "What it shall do for any input, or what to change, with all that the user said",
                },
                "change": {
                    "type": "boolean",
                    "description": "Make a new version of the capability with this name",
                },
                "input_schema": {"type": "object", "description": "JSON Schema of its input, if you know it"},
                "distinct": {
                    "type": "boolean",
                    "description": "Build it although a similar one was found, because that one does something else",
                },
            },
            required=["name", "description"],
            annotations=_BUILDS,
            effects=lambda _, __: (Effect(resource="capabilities", writes=True),),
            seldom=("input_schema", "change", "distinct"),
        )

    def _execute(self) -> Tool:
        return _Execute(
            ToolSpec(
                name="execute_capability",
                description="Run an active capability by its name, with an input that fits its input_schema: the same "
                "as calling cap_<name>, but also in the background.",
                input_schema={
                    "type": "object",
                    "properties": {
                        "name": {
                            "type": "string",
                            "minLength": 1,
                            "description": "Its name, as in weather_lookup",
                        },
                        "input": {"type": "object", "description": "Its input"},
                        "background": {
                            "type": "boolean",
                            "description": f"Return at once, and give it {BACKGROUND_WALL_S:g} s. A message brings the "
                            "result; `jobs` reads what it prints and stops it",
                        },
                    },
                    "required": ["name"],
                    "additionalProperties": False,
                },
                annotations=Annotations(),
                timeout_s=MOST_WALL_S + _PREPARATION_S,
                is_deferred=True,
            ),
            self,
        )

    def _read(self, *, is_deferred: bool) -> Tool:
        async def call(input: Mapping[str, Any], _: ToolContext) -> ToolResult:
            name, file = input["name"], input.get("file", "")
            capability = await self._catalogue.find(name)
            if capability is not None and capability.version:
                return await self._document(capability, file)
            other = await self._documents.read(name, file) if self._documents is not None else None
            if other is not None:
                return other
            raise NotFound(f"There are no documents of {name[:80]!r}. lookup_capability finds capabilities.")

        return function_tool(
            call,
            name="read_docs",
            description="Read the document of a capability or a skill, before you follow a skill.",
            properties={
                "name": {"type": "string", "minLength": 1},
                "file": {"type": "string", "description": f"Another of its files (default {SKILL})"},
            },
            required=["name"],
            annotations=_READS,
            is_deferred=is_deferred,
        )

    async def _document(self, capability: Capability, file: str) -> ToolResult:
        package = await self._catalogue.read(capability)
        await self._catalogue.note_read(capability.id)
        wanted = file.strip().removeprefix("./") or SKILL
        content = package.files.get(wanted)
        if content is None:
            raise NotFound(
                f"{capability.name} has no file {wanted[:80]!r}. It has: {', '.join(sorted(package.files))}."
            )
        text = cut_text(content.decode("utf-8", "replace"), _MOST_DOCUMENT)
        return ToolResult(text=text, untrusted=capability.provenance.made_by == "import")


def _age(capability: Capability) -> tuple[datetime, str]:
    return capability.created_at, capability.name


def _described(capability: Capability) -> dict[str, Any]:
    """The answer of `lookup_capability` about one capability."""
    answer: dict[str, Any] = {
        "id": capability.id,
        "name": capability.name,
        "description": capability.description,
        "status": capability.status,
        "input_schema": capability.input_schema,
    }
    if capability.is_skill:
        answer["message"] = f"It is a skill: {_READ_SKILL}."
    elif capability.status == "active":
        answer["tool"] = capability.tool_name
    if capability.build_id:
        answer["build_id"] = capability.build_id
    if capability.reasons:
        answer["reasons"] = list(capability.reasons)
    if capability.reliability.failing_since is not None:
        answer["failing_since"] = capability.reliability.failing_since.isoformat()
    return answer


def _show_requested(text: str) -> ShownResult:
    """The card of the build says the rest, so what is there for the model alone is left out."""
    answer = json_in(text)
    if isinstance(answer, dict) and not answer.keys().isdisjoint(("build_id", "adds_to")):
        return ShownResult(summary="")
    return any_result({}, text)


def _changing(requested: Requested, *, wish: str) -> dict[str, Any]:
    """The answer of `request_capability` about a new version; the wish goes to whoever has it built."""
    capability = requested.capability
    now = f" Until then, version {capability.version} works as before." if capability.version else ""
    if not requested.is_new:
        return {
            "status": "adding",
            "capability_id": capability.id,
            "adds_to": requested.build_id,
            "wish": wish,
            "message": "It is being built right now, and its Builder is told this as well. A message tells when it is "
            f"ready, and if this came too late for it.{now}",
        }
    return {
        "status": "building",
        "capability_id": capability.id,
        "build_id": requested.build_id,
        "wish": wish,
        "message": f"A new version is being built in the background. A message tells when it is ready.{now}",
    }


def _requested(requested: Requested, *, session_id: str) -> dict[str, Any]:
    capability = requested.capability
    answer: dict[str, Any] = {"status": capability.status, "capability_id": capability.id}
    # What nobody's conversation asked for becomes this one's.
    is_own = requested.is_new or capability.provenance.session_id in ("", session_id)
    if capability.status == "building" and (requested.similar or not is_own):
        # No message of it comes here, so nothing may wait for one.
        message = (
            "It is being built already, or waits for the user's answer: /capability says which. lookup_capability "
            "says when it is ready."
        )
    elif capability.status == "building":
        message = "It is being built in the background. A message tells when it is ready."
        if not requested.is_new:
            message += " To add to what it shall do: change = true."
        answer["build_id"] = requested.build_id
    else:
        answer["name"] = capability.name
        message = {
            "active": f"It is a skill, and there already: {_READ_SKILL}."
            if capability.is_skill
            else f"It is there already: {CALL.format(capability.name)}. If it has to be "
            "changed, request it again with change = true and say in description what shall be different.",
            "proposed": "It is built and waits for the user's approval: "
            f"/capability approve {capability.name}",
            "disabled": f"The user has disabled it: /capability enable {capability.name}",
            "failed": "It could not be built.",
        }[capability.status]
    if requested.similar:
        does = one_line(capability.description, _LINE_CHARS)
        message = (
            f"There is {capability.name}, which may do this: {does} {message} If yours is another thing, request it "
            "again with distinct = true."
        )
        answer["similar"] = True
    return {**answer, "message": message}


def _failure(outcome: Outcome) -> list[str]:
    if outcome.status == "bad_input":
        return [f"The input was refused: {outcome.error}"]
    parts = [f"{outcome.capability} failed ({outcome.status}): {outcome.error}".rstrip(": ")]
    if outcome.traceback:
        parts.append(outcome.traceback[-_MOST_TRACEBACK:])
    parts += [f"The sandbox refused {denial.target}: {denial.reason}" for denial in outcome.denied]
    if outcome.failing:
        parts.append(
            f"It has failed three times in a row. Have it repaired: request_capability with name {outcome.capability}, "
            "change = true, and what goes wrong as its description."
        )
    return parts


def _save(folder: Path, artifacts: Sequence[Artifact]) -> list[Path]:
    """Write the files that a run left; the sandbox has checked their paths, and so does this."""
    saved = []
    for artifact in artifacts:
        parts = PurePosixPath(artifact.path).parts
        if not parts or ".." in parts or artifact.path.startswith("/"):
            continue
        path = folder.joinpath(*parts)
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        path.write_bytes(artifact.content)
        saved.append(path)
    return saved
