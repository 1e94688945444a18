"""The Builder's six tools (seed-0, "Phase 2: Build")."""

from __future__ import annotations

import json
import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeAlias

from satchel.builder.asking import Asking, LaidAside, consent_id, unset_id
from satchel.builder.queue import BuildQueue
from satchel.builder.records import Build
from satchel.builder.registering import Registering
from satchel.builder.story import Story
from satchel.builder.workshop import Workshop, wanted_packages
from satchel.capabilities.access import sentences
from satchel.capabilities.package import Draft, with_port
from satchel.capabilities.records import Access
from satchel.clock import Clock
from satchel.errors import NotFound, UsageError
from satchel.sandbox.port import CommandResult, Status
from satchel.tools import Effect, Tool, ToolContext, ToolResult, function_tool
from satchel.wording import yes_or_no

_MOST_TIMEOUT_S: Final = 120
_QUESTION_MARGIN_S: Final = 30.0
_REGISTER_TIMEOUT_S: Final = 300.0
"""Packages may have to be installed, and fifty cases may run."""
_MOST_CODE: Final = 256_000
_MOST_CASES: Final = 512_000
_MOST_SUPPLEMENT: Final = 1_000_000
_NAMED: Final = (
    "description", "input_schema", "output_schema", "document", "tags", "hosts", "secrets", "state", "limits",
)  # fmt: skip
"""What a draft takes from the input of `register_capability` as it is."""
_KEPT: Final = ("main.py", "requirements.txt", "tests/cases.jsonl")
_SAMPLE: Final = re.compile(r'"(tests/[^"\\]+)"')
"""A file in the input of a case."""

_Function: TypeAlias = Callable[[Mapping[str, Any], ToolContext], Awaitable[ToolResult]]


_HOSTS_FIELD: Final = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 260},
    "maxItems": 16,
    "description": 'Hosts that this needs to reach, with their ports: ["api.example.org:443"], and what it calls. The '
    "user is asked about each once. Leave it out if it needs nothing.",
}
_TIMEOUT_FIELD: Final = {
    "type": "number", "minimum": 1, "maximum": _MOST_TIMEOUT_S, "description": "Seconds; 60 if left out.",
}  # fmt: skip
_WORDS: Final = {
    "type": "array",
    "items": {"type": "string", "minLength": 1, "maxLength": 260},
    "maxItems": 32,
}


class BuildTools:
    """The tools of one build."""

    def __init__(
        self,
        build: Build,
        *,
        workshop: Workshop,
        story: Story,
        queue: BuildQueue,
        asking: Asking,
        wait_s: float,
        registering: Registering,
        clock: Clock,
    ) -> None:
        """Make the tools; `wait_s` is how long a question waits for its answer."""
        self._build = build
        self._workshop = workshop
        self._story = story
        self._queue = queue
        self._asking = asking
        self._wait_s = wait_s
        self._registering = registering
        # The hosts that the user refused; an answer is found again after an interruption.
        self._refused: set[str] = set()
        self._clock = clock
        # Of the call that runs now: when it began, and for how long it has waited for the user, since when if it does.
        self._began_s: float | None = None
        self._waited_s = 0.0
        self._waits_since_s: float | None = None

    @property
    def working_s(self) -> float:
        """For how many seconds the call that runs now has worked, without those in which it waited for the user."""
        if self._began_s is None:
            return 0.0
        until_s = self._clock.monotonic_s() if self._waits_since_s is None else self._waits_since_s
        return until_s - self._began_s - self._waited_s

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The six tools, always in this order."""
        question_s = self._wait_s + _QUESTION_MARGIN_S
        run_s = _MOST_TIMEOUT_S + question_s + _REGISTER_TIMEOUT_S
        return (
            _tool(
                self._working(self._write_file),
                "write_file",
                "Write a text file in the working folder; an existing one is replaced. Its folders are created.",
                {
                    "path": {"type": "string", "minLength": 1, "description": 'Such as "main.py".'},
                    "content": {"type": "string"},
                },
                ("path", "content"),
                repeatable=True,
                timeout_s=30.0,
            ),
            _tool(
                self._working(self._run_code),
                "run_code",
                "Run Python code in the working folder, in a sandbox. What it prints, and the value of its last "
                "expression, come back. Every call is a fresh process: only files stay. "
                'To test: `from main import run; run({"city": "Austin"})`.',
                {"code": {"type": "string", "minLength": 1}, "hosts": _HOSTS_FIELD, "timeout_s": _TIMEOUT_FIELD},
                ("code",),
                timeout_s=run_s,
            ),
            _tool(
                self._working(self._run_command),
                "run_command",
                "Run a shell command in the working folder, in the same sandbox. `pip install NAME` adds a package to "
                "requirements.txt and makes it available; nothing else can be installed.",
                {"command": {"type": "string", "minLength": 1}, "hosts": _HOSTS_FIELD, "timeout_s": _TIMEOUT_FIELD},
                ("command",),
                timeout_s=run_s,
            ),
            _tool(
                self._ask_user,
                "ask_user",
                f"Ask the user one question. If they have not answered after {self._wait_s:g} seconds, you go on with "
                "`default`. Leave it out only where that is not safe or hard to change later: then your work pauses "
                "until they answer, which may be tomorrow.",
                {
                    "question": {"type": "string", "minLength": 1},
                    "options": {"type": "array", "items": {"type": "string"}, "maxItems": 10},
                    "default": {
                        "type": "string", "minLength": 1, "description": "What you do without an answer.",
                    },
                },
                ("question",),
                repeatable=True,
                ordered=False,
                timeout_s=question_s,
            ),
            _tool(
                self._report_progress,
                "report_progress",
                "Tell the user in one short sentence what you are doing. Use it at each new stage of the work.",
                {"text": {"type": "string", "minLength": 1, "maxLength": 500}},
                ("text",),
                repeatable=True,
                ordered=False,
                timeout_s=30.0,
            ),
            _tool(
                self._working(self._register),
                "register_capability",
                "Finish: main.py, requirements.txt and tests/cases.jsonl are taken from the working folder, all cases "
                "run in a fresh sandbox, and the capability is registered if they pass. If it is refused, you get the "
                "reasons.",
                {
                    "description": {
                        "type": "string", "minLength": 1, "maxLength": 1024,
                        "description": "What it does and when to use it, in a line.",
                    },
                    "input_schema": {
                        "type": "object", "description": 'JSON Schema of `args`, of type "object", fields described.',
                    },
                    "output_schema": {"type": "object", "description": "JSON Schema of the result, if it is JSON."},
                    "document": {
                        "type": "string",
                        "description": "Markdown: what a user needs to know besides description and schema.",
                    },
                    "tags": _WORDS,
                    "hosts": {
                        **_WORDS,
                        "description": 'What it reaches: hosts ("api.example.org:443"), and what it calls '
                        '("capability:split_bill", "mcp:SERVER.TOOL", "model").',
                    },
                    "secrets": {**_WORDS, "description": "Environment variables with keys that it needs."},
                    "state": {"type": "boolean", "description": "It keeps files from one run to the next."},
                    "limits": {
                        "type": "object",
                        "properties": {"wall_s": {"type": "integer"}, "mem_mb": {"type": "integer"}},
                        "additionalProperties": False,
                        "description": "Only where a minute or 512 MB are not enough.",
                    },
                    "files": {**_WORDS, "description": "Other files and folders of the working folder that it needs."},
                },
                ("description", "input_schema"),
                repeatable=True,
                timeout_s=_REGISTER_TIMEOUT_S + question_s,
            ),
        )  # fmt: skip

    # The tools

    async def _write_file(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        path, content = str(input["path"]), str(input["content"])
        await self._workshop.write(path, content)
        return ToolResult(text=f"Written: {path}, {len(content.encode('utf-8', 'replace')):,} bytes.")

    async def _run_code(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        refused = await self._allow_hosts(input.get("hosts", ()), context.call_id)
        if refused:
            return ToolResult(text=refused, is_error=True)
        timeout_s = float(input.get("timeout_s", 60))
        return self._shown(await self._workshop.run_code(str(input["code"]), timeout_s=timeout_s))

    async def _run_command(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        command = str(input["command"])
        packages = wanted_packages(command)
        if packages is not None:
            await self._workshop.require(packages)
            names = ", ".join(await self._workshop.requirements()) or "none"
            return ToolResult(text=f"Installed. requirements.txt: {names}.")
        refused = await self._allow_hosts(input.get("hosts", ()), context.call_id)
        if refused:
            return ToolResult(text=refused, is_error=True)
        timeout_s = float(input.get("timeout_s", 60))
        return self._shown(await self._workshop.run_command(command, timeout_s=timeout_s))

    async def _ask_user(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        default = str(input.get("default", ""))
        try:
            answer = await self._asking.ask(
                context.call_id,
                str(input["question"]),
                tuple(input.get("options", ())),
                otherwise=f"The Builder goes on with: {default}" if default else "",
            )
        except LaidAside as aside:
            return _no_answer_yet(aside.question_id)
        if answer.text is not None:
            return ToolResult(text=answer.text, data={"answered": True})
        if answer.declined:
            return ToolResult(
                text="The user does not want to answer. Decide yourself, and say what you decided.",
                data={"answered": True},
            )
        return ToolResult(
            text=f"The user did not answer within {answer.waited_s:g} s. They were told that you go on with your "
            f"default: {default}"
        )

    async def _report_progress(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        await self._queue.tell(
            self._build.id,
            id=f"progress:{context.call_id}",
            type="progress",
            payload={"text": " ".join(str(input["text"]).split())},
        )
        return ToolResult(text="The user has been told.")

    async def _register(self, input: Mapping[str, Any], context: ToolContext) -> ToolResult:
        # A call that is repeated after an interruption finds what it did.
        done = await self._registering.registered(self._build)
        if done is None:
            if not self._story.is_tested:
                return ToolResult(
                    text="Refused: since main.py was last written, nothing has run without an error. Call `run` with "
                    "run_code first, with an ordinary input and with a bad one.",
                    is_error=True,
                )
            try:
                draft = await self._draft(input)
            except (UsageError, NotFound) as error:
                return ToolResult(text=f"Refused: {error}", is_error=True)
            secrets = tuple(map(str, draft.secrets))
            wanted = Access(hosts=draft_hosts(draft), secrets=secrets, state=bool(draft.state))
            missing = await self._ask_for(wanted, context.call_id)
            await self._ask_to_set(wanted.without(missing).secrets, context.call_id)
            if await self._queue.wishes(self._build.id) - self._story.heard:
                return ToolResult(
                    text="Refused: the user has added something meanwhile. Do that, with a case that shows it, and "
                    "call register_capability again.",
                    is_error=True,
                )
            try:
                done = await self._registering.register(self._build, draft)
            except UsageError as error:
                return ToolResult(
                    text=f"Refused:\n{error}\nCorrect this and call register_capability again.", is_error=True
                )
        return ToolResult(
            text=done.text, data={"version": done.number, "status": done.status}, ends_turn=True
        )

    # What they share

    def _working(self, function: _Function) -> _Function:
        """Measure a tool whose calls run one after the other, and end the turn where one lacks the user's answer."""

        async def run(input: Mapping[str, Any], context: ToolContext) -> ToolResult:
            # What stood behind it in the same answer of the model may need what it would have done.
            if self._story.waits_for:
                return _no_answer_yet(self._story.waits_for[0])
            self._began_s, self._waited_s = self._clock.monotonic_s(), 0.0
            try:
                result = await function(input, context)
            except LaidAside as aside:
                result = _no_answer_yet(aside.question_id)
            finally:
                self._began_s = None
            if not self._waited_s:
                return result
            return replace(result, data={**(result.data or {}), "waited_s": round(self._waited_s, 3)})

        return run

    async def _draft(self, input: Mapping[str, Any]) -> Draft:
        code = await self._workshop.read("main.py", max_bytes=_MOST_CODE)
        cases = await self._workshop.read("tests/cases.jsonl", max_bytes=_MOST_CASES)
        missing = [
            path for path, content in (("main.py", code), ("tests/cases.jsonl", cases)) if content is None
        ]
        if code is None or cases is None:
            raise UsageError(f"{' and '.join(missing)} is missing in the working folder. Write it first.")
        # What a repair does not name stays as it was.
        before = await self._registering.present(self._build)
        named = [str(path) for path in input.get("files", before.files if before is not None else ())]
        # The samples that cases name belong to them, named here or not.
        samples = dict.fromkeys(_SAMPLE.findall(cases.decode("utf-8", "replace")))
        named += [
            path
            for path in samples
            if await self._workshop.read(path, max_bytes=_MOST_SUPPLEMENT) is not None
        ]
        more = [path for path in named if path.removeprefix("./") not in _KEPT]
        files = await self._workshop.files(more) if more else {}
        if sum(map(len, files.values())) > 4 * _MOST_SUPPLEMENT:
            raise UsageError("The other files have more than 4,000,000 bytes together.")
        given = await self._registering.given(self._build)
        earned = await self._earned_cases()
        own = cases.decode("utf-8", "replace").splitlines()
        lines = [*(line for line in own if line not in earned), *earned]
        made = {
            "code": code.decode("utf-8", "replace") if given is None else given.draft.code,
            "cases": "".join(f"{line}\n" for line in lines),
            "requirements": await self._workshop.requirements(),
            **{name: input[name] for name in _NAMED if name in input},
            "files": {path: content for path, content in files.items() if path not in _KEPT},
        }
        return Draft(**made) if before is None else replace(before, **made)

    async def _earned_cases(self) -> Sequence[str]:
        """The lines of the cases that the log gives: what is proposed because of them has to pass them."""
        builds = await self._queue.of_capability(self._build.capability_id)
        asked = [await self._queue.proposal(build.id) for build in builds]
        return [json.dumps(case, ensure_ascii=False) for each in asked for case in each.get("cases", ())]

    async def _allow_hosts(self, hosts: Sequence[str], call_id: str) -> str:
        """Make hosts reachable if the user allows them. Returns why not, or ""."""
        wanted = Access(hosts=tuple(sorted({with_port(str(host)) for host in hosts})))
        left = await self._ask_for(wanted, call_id)
        if not left:
            await self._workshop.allow(wanted.hosts)
            return ""
        names = ", ".join(left.hosts)
        if not self._refused.isdisjoint(left.hosts):
            return (
                f"Not run: the user was asked about connections to {names} and did not allow them. Build it without "
                "them if that makes sense; otherwise stop and say why."
            )
        return (
            f"Not run: the user has not allowed connections to {names} yet. Build it without them if that makes sense. "
            'Otherwise write the code so that its cases need no network (mark those that do with "network": true) and '
            "register it with these hosts, and the user can approve them later; or stop and say why."
        )

    async def _ask_for(self, access: Access, call_id: str) -> Access:
        """Ask the user to allow what is not allowed yet, once for the build. Returns what is still not allowed."""
        missing = await self._registering.missing(self._build, access)
        if not missing or await self._registering.registrar.forbidden(self._build.name):
            return missing
        named = "|".join(f"{kind}={value}" for kind, value in missing.items)
        wishes = " ".join(sentences(missing, name=self._build.name))
        self._waits_since_s = began_s = self._clock.monotonic_s()
        try:
            answer = await self._asking.ask(
                consent_id(named),
                f"Do you allow this from now on? {wishes}",
                ("yes", "no"),
            )
        finally:
            self._waits_since_s = None
            self._waited_s += self._clock.monotonic_s() - began_s
        if not yes_or_no(answer.text or ""):
            self._refused.update(missing.hosts)
            return missing
        await self._registering.catalogue.approve(self._build.capability_id, missing)
        return Access()

    async def _ask_to_set(self, secrets: Sequence[str], call_id: str) -> None:
        """Ask the user to set what has no value here, without which no case can run.

        Raises:
            LaidAside: Something has none. Another process, which has it, goes on with the build.
        """
        if not (unset := self._registering.registrar.unset(secrets)):
            return
        question_id = unset_id(call_id)
        text = (
            f"{self._build.name} needs {' and '.join(unset)}, which has no value where it is being built. Set it, then "
            "answer in a shell that has it, or start Satchel again with it and answer then."
        )
        payload = {"text": text, "options": ["It is set"]}
        await self._queue.tell(self._build.id, id=question_id, type="question", payload=payload)
        raise LaidAside(question_id)

    def _shown(self, result: CommandResult) -> ToolResult:
        parts = [result.stdout.rstrip()]
        if result.stderr.strip():
            parts.append(f"[stderr]\n{result.stderr.rstrip()}")
        if result.status is not Status.OK:
            parts.append(f"[{result.status}] {result.error}".rstrip())
        parts += [
            f"[network] {denial.target}: {denial.reason} If it needs this host, name it in `hosts`."
            for denial in result.denied
        ]
        text = "\n".join(part for part in parts if part)
        return ToolResult(
            text=text or "(no output)", is_error=not result.ok, data={"status": result.status.value}
        )


def _no_answer_yet(question_id: str) -> ToolResult:
    return ToolResult(
        text="No answer yet: the build goes on when the user has answered.",
        data={"waits_for": question_id},
        ends_turn=True,
    )


def draft_hosts(draft: Draft) -> tuple[str, ...]:
    """The hosts of a draft as its manifest will have them; what is no text is refused at registration."""
    return tuple(sorted({with_port(str(host)) for host in draft.hosts}))


def _tool(
    function: _Function,
    name: str,
    description: str,
    properties: Mapping[str, Any],
    required: Sequence[str],
    *,
    timeout_s: float,
    repeatable: bool = False,
    ordered: bool = True,
) -> Tool:
    """Make a tool; calls of `ordered` tools of one round run one after the other."""
    effects = (Effect(resource="build", writes=True),) if ordered else ()
    return function_tool(
        function,
        name=name,
        description=description,
        properties=properties,
        required=required,
        effects=lambda _input, _context: effects,
        timeout_s=timeout_s,
        repeatable=repeatable,
    )
