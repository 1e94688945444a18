"""Decides which calls may run, whatever the source of the tool: by rules, then by the mode, then by asking the user.

Rules that deny come first, then rules that ask, then rules that allow, then the mode.

- `ask`, the default: built-in tools run if they destroy nothing, reach no network and touch no file outside the
  session's own folders. The user is asked about everything else, including reading a file elsewhere.
- `auto`: built-in tools that only read run as well, anywhere. Programs (`bash`, executables, stdio MCP servers) run in
  the sandbox of the workspace, and the file tools write there what a boxed command could write. The user is asked
  about everything else, and about what a call needs beyond the sandbox: hosts, paths, or to run outside. Without a
  sandbox, the user is asked as in `ask`. What a stranger's tool says about itself is ignored.
- Once the model has read something from outside, a call that would reach a place of the model's choice on the
  network is asked in `auto` and `plan` as well, unless a rule allows it: an address can carry words out.
- In neither does a tool read by itself where keys and passwords are: outside of the session's folder, what is
  hidden, what the system does not let everybody read, and what `/proc` tells of other programs; and a home, or
  a folder above it, as a whole.
- `plan`: built-in tools that only read run as in `auto`. Nothing else does, whatever a rule allows and without asking:
  the model is told to propose a plan (`satchel.tools.builtin.propose_plan`), and the refusal shows the call.
- `bypass`: everything runs but what a rule denies.

A rule that allows does not take the sandbox away, unless it says `boxed = false`. Its hosts and paths are added to the
sandbox of the calls that it covers. A star in a command's pattern stands for any words, whatever they make the program
do; so what it covers runs in the sandbox in mode `ask` as well, as do calls that a rule with `boxed = true` covers.

Where there is nobody to ask, "asked" means refused, and the refusal names the rule that would have allowed
the call.
"""

from __future__ import annotations

import json
import os.path
import re
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio

from satchel.config import Mode, RuleAction, RuleOptions, rule_options, rule_text
from satchel.errors import SatchelError, UsageError
from satchel.events import Consent as Consent
from satchel.tools.box import Box, Boxing, granted_paths, read_wish
from satchel.tools.paths import Places, is_below, path_forms, path_matcher, plain_pattern
from satchel.tools.patterns import (
    Matcher,
    between_stars,
    covers,
    escaped,
    has_star,
    literal,
    matcher,
    only_prints,
    proposed_pattern,
    url_matches,
    url_may_match,
)
from satchel.tools.port import ToolSpec
from satchel.tools.shell import MAX_CHARS, possible_commands, read_commands, words_text
from satchel.tools.urls import plain_url

FORM = re.compile(r"(?P<tool>[A-Za-z0-9_*-]+)(?:\((?P<pattern>.*)\))?", re.DOTALL)
_SHOWN_CHARS = 2_000
_MOST_PATH_CHARS = 4_096
"""PATH_MAX: a longer text is no path."""
PATH_KEY = "path"
"""A tool whose `pattern_key` is this has paths compared as paths: made absolute, `..` and symlinks
resolved."""
URL_KEY = "url"
"""A tool whose `pattern_key` is this has addresses compared as they are; any other field is a command's line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedCall:
    """A call that a model asks for; `input` is valid against the tool's schema.

    Attributes:
        untrusted: The model has read something from outside in this session: it may be acting on a stranger's words.
        for_sub_agent: A sub-agent makes it, which the user is told when asked.
    """

    call_id: str
    spec: ToolSpec
    input: Mapping[str, Any]
    untrusted: bool = False
    for_sub_agent: bool = False

    @property
    def subject(self) -> str | None:
        """What patterns are compared with: the input field that the tool names, or None where it names
        none.
        """
        value = self.input.get(self.spec.pattern_key) if self.spec.pattern_key else None
        if value is None and self.spec.pattern_key == PATH_KEY:
            return "."
        return value if isinstance(value, str) else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """Whether a call may run, and who decided.

    Attributes:
        by: "nobody" where the user had to be asked and there was no one.
        rule: The text of the rule that decided, or that the user's answer made; else "".
        reason: For the model, where the call is refused: why, and what would allow it.
        box: The sandbox in which an allowed call runs; None outside.
        wanted: The rules that would have allowed the call, where nobody was there to be asked.
    """

    allowed: bool
    by: Literal["mode", "rule", "user", "nobody"]
    rule: str = ""
    reason: str = ""
    box: Box | None = None
    wanted: tuple[str, ...] = ()


class Gate(Protocol):
    """Where every call passes before it runs."""

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """Decide on the calls of one round together; one decision each, in their order."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ApprovalRequest:
    """One question to the user.

    Attributes:
        rules: The rules, as texts, that "session" and "always" would add.
        reason: Why it is asked: the mode, the text of an `ask` rule, or what the call wants beyond its sandbox.
        box: The sandbox in which it runs if it is allowed; None outside.
    """

    call: PlannedCall
    rules: tuple[str, ...]
    reason: str
    box: Box | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Approval:
    """The user's answer; `words` are told to the model."""

    answer: Consent
    words: str = ""


class Approver(Protocol):
    """Asks the user; a face of the program implements it."""

    async def approve(self, requests: Sequence[ApprovalRequest]) -> Sequence[Approval] | None:
        """Ask for all of them together; one answer each, in their order. May take as long as the user does. None where
        nobody can be asked.
        """
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """What happens to the calls of some tools whose subject matches a pattern; made by `parse_rule`.

    Attributes:
        tool: A name; `*` stands for any characters.
        pattern: The same for the call's subject; `\\*` and `\\\\` stand for themselves. None matches every call.
        options: What a rule that allows says about the sandbox of these calls.
    """

    action: RuleAction
    tool: str
    pattern: str | None = None
    options: RuleOptions = RuleOptions()

    @property
    def subject(self) -> str:
        """The tool and the pattern: `bash(git *)`."""
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"

    @property
    def text(self) -> str:
        """As it is written: `bash(git *)`, `bash network=pypi.org`."""
        return rule_text(self.subject, self.options)

    @property
    def holds_outside(self) -> bool:
        """Whether it lets commands run outside of a sandbox: it says so, or it names one and gives no sandbox."""
        return self.options.boxed is False or not (self.needs_box or has_star(self.pattern or ""))

    @property
    def needs_box(self) -> bool:
        """Whether it only says what a sandbox gives, so that by itself it allows no call outside of one.

        A rule with secrets does allow calls: those of capabilities, which always run in a sandbox.
        """
        options = self.options
        return (
            bool(options.boxed or options.network or options.read or options.write or options.state)
            and not options.secrets
        )


def parse_rule(action: RuleAction, text: str, options: RuleOptions | None = None) -> Rule:
    r"""Read a rule.

    Args:
        action: What the rule does.
        text: `bash`, `file_*`, `bash(git *)`, `file_write(src/*)`. A `*` stands for any characters, `\*` for
        a star;
            a pattern that ends in " *" also matches the command without arguments. Options may follow, if `options`
            is None: `bash(npm *) network=registry.npmjs.org boxed=true`.
        options: Those of the rule.

    Raises:
        UsageError: It is none; the message says what it should look like.
    """
    tool, options = rule_options(text.strip()) if options is None else (text.strip(), options)
    if options and action != "allow":
        raise UsageError(
            f"{text!r} is no permission rule: only rules that allow have network, read, write, boxed, "
            "secrets and state."
        )
    match = FORM.fullmatch(tool)
    if match is None:
        raise UsageError(
            f"{text!r} is no permission rule. A rule is a tool's name, with a pattern in parentheses "
            f"where wanted: "
            "bash, file_*, bash(git *), file_write(src/*)."
        )
    pattern = match["pattern"]
    if pattern is not None and not pattern.strip():
        raise UsageError(
            f"The pattern of the permission rule {text!r} is empty. Write {match['tool']!r} for every "
            f"call, or say "
            f"which: {match['tool']}(git *)."
        )
    return Rule(action=action, tool=match["tool"], pattern=pattern, options=options)


class ModeGate:
    """Rules, then a mode, then the user: see the module's docstring.

    Attributes:
        before_plan: The mode in which an approved plan is carried out: the last one that was not `plan`.
    """

    def __init__(
        self,
        mode: Mode,
        rules: Sequence[Rule],
        approver: Approver | None = None,
        *,
        cwd: Path,
        open_folders: Sequence[Path] = (),
        environ: Mapping[str, str] | None = None,
        on_always: Callable[[Rule], Awaitable[None]] | None = None,
        boxing: Boxing | None = None,
        before_plan: Mode = "ask",
        look: Callable[[], Awaitable[None]] | None = None,
    ) -> None:
        """Make the gate of one session.

        Args:
            mode: It may be changed later by assigning to `mode`.
            rules: In any order.
            approver: None where nobody can be asked.
            cwd: What relative paths are relative to; reading below it is harmless.
            open_folders: More such folders, as the one where long results are kept.
            environ: HOME in it is what `~` stands for.
            on_always: Writes a rule down; None where that can't be done.
            boxing: Where boxed calls run; None where there is no sandbox.
            before_plan: See the class; only counts where `mode` is `plan`.
            look: Called before each decision, to `change` the rules if others have.
        """
        self.before_plan: Mode = before_plan
        self.mode = mode
        self._rules = list(rules)
        self._approver = approver
        self._cwd = cwd
        self._places = Places.of((cwd, *open_folders), environ or {})
        self._roots = [Path(os.path.realpath(cwd))]
        self._on_always = on_always
        self._boxing = boxing
        self._look = look
        self._asking = anyio.Lock()
        self._paths: dict[str, str] = {}
        self._learn_paths(self._rules)
        self._programs: Box | None = None
        self._lacks: dict[str, str] = {}

    @property
    def mode(self) -> Mode:
        """How calls that no rule covers are decided."""
        return self._mode

    @mode.setter
    def mode(self, mode: Mode) -> None:
        self._mode: Mode = mode
        if mode != "plan":
            self.before_plan = mode

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force, those that the user's answers made last."""
        return tuple(self._rules)

    def change(self, *, added: Sequence[Rule], removed: Sequence[Rule]) -> None:
        """Take rules that were written or removed while the session is open; a removed one holds no more at all."""
        self._rules = [rule for rule in self._rules if rule not in removed]
        fresh = [rule for rule in added if rule not in self._rules]
        self._rules += fresh
        self._learn_paths(fresh)

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """See `Gate`. What has to be asked is asked in one batch; two rounds are asked one after the
        other.
        """
        if self._look is not None:
            await self._look()
        await self._learn_what_lacks(calls)
        await self._offer_programs(calls)

        def decide_alone() -> list[Decision | ApprovalRequest]:
            return [self._without_asking(call, self._lacks.get(call.spec.source, "")) for call in calls]

        decided = decide_alone()
        if not all(isinstance(found, Decision) for found in decided):
            async with self._asking:
                # An answer that another round got meanwhile may have settled it.
                decided = decide_alone()
                requests = [found for found in decided if isinstance(found, ApprovalRequest)]
                answered = iter(await self._ask(requests))
                decided = [found if isinstance(found, Decision) else next(answered) for found in decided]
        decisions = [found for found in decided if isinstance(found, Decision)]
        for call, decision in zip(calls, decisions, strict=True):
            if decision.allowed:
                self._open_for(call)
        return decisions

    @property
    def roots(self) -> Sequence[Path]:
        """The folders and files that calls were allowed to touch so far, the session's folder first.

        It is the same list all the time and grows: given to the file tools, it lets an allowed call reach
        exactly what was decided on, even if a symlink on the way is changed between the two.
        """
        return self._roots

    def suggest(self, call: PlannedCall, *, outside: bool = False) -> tuple[str, ...]:
        """The narrowest rules, as texts, that would allow this call and, in the sandbox, others like it. With
        `outside`, they are for outside of the sandbox.
        """
        name, subject = call.spec.name, call.subject
        if subject is None:
            return (name,)
        if call.spec.pattern_key == PATH_KEY:
            path = self._forms(subject)[-1][0]
            folder = path.rpartition("/")[0]
            if path.startswith("/"):
                return (f"{name}({escaped(path)})",)
            return (f"{name}({escaped(folder)}/*)" if folder else f"{name}({escaped(path)})",)
        if call.spec.pattern_key == URL_KEY:
            url = plain_url(subject)
            # No rule that allows matches what is not a URL: the tool reports the error.
            return (f"{name}({url.scheme}://{url.netloc}/*)" if url else f"{name}({escaped(subject)})",)
        no_box = outside or self._boxing is None or bool(self._lacks.get(call.spec.source))
        patterns = [] if no_box else [proposed_pattern(words) for words in read_commands(subject) or ()]
        if not patterns or None in patterns:
            # Nor one rule for each part: what is right after `cd build &&` may be wrong in another folder.
            return (f"{name}({escaped(subject)})",)
        return tuple(dict.fromkeys(f"{name}({pattern})" for pattern in patterns))

    async def _ask(self, requests: Sequence[ApprovalRequest]) -> list[Decision]:
        if not requests:
            return []
        requests = [
            replace(request, reason=f"{request.reason}, for a sub-agent")
            if request.call.for_sub_agent
            else request
            for request in requests
        ]
        answers = await self._approver.approve(requests) if self._approver is not None else None
        if answers is None:
            return [self._nobody(request) for request in requests]
        return [
            await self._decision_by_user(request, answer)
            for request, answer in zip(requests, answers, strict=True)
        ]

    async def _decision_by_user(self, request: ApprovalRequest, approval: Approval) -> Decision:
        """The decision that an answer makes. Its rules are added to the session, and saved if it is "always"."""
        name = request.call.spec.name
        if approval.answer == "no":
            then = "do without it or ask what they want."
            said = ""
            if approval.words:
                said, then = f' They said: "{approval.words}".', "do what they said."
            return Decision(
                allowed=False,
                by="user",
                reason=f"The user refused this call of {name}.{said} Don't try the same by another way; {then}",
            )
        if approval.answer == "once":
            return Decision(allowed=True, by="user", box=request.box)
        reason = ""
        for text in request.rules:
            rule = parse_rule("allow", text)
            self._rules.append(rule)
            self._learn_paths([rule])
            if approval.answer == "always" and self._on_always is not None:
                try:
                    await self._on_always(rule)
                except SatchelError as error:
                    reason = f"{text} holds for this conversation only: {error}"
        rules = ", ".join(request.rules)
        return Decision(allowed=True, by="user", rule=rules, reason=reason, box=request.box)

    def _nobody(self, request: ApprovalRequest) -> Decision:
        name = request.call.spec.name
        return Decision(
            allowed=False,
            by="nobody",
            wanted=tuple(request.rules),
            reason=f"{name} has to be allowed by the user ({request.reason}), and nobody is there to be asked. "
            f"What would allow it, as permission rules: {' and '.join(request.rules)}",
        )

    async def _learn_what_lacks(self, calls: Sequence[PlannedCall]) -> None:
        """Learn why calls that may be boxed can't be, by their source, as far as that matters."""
        if self._boxing is None:
            self._lacks = dict.fromkeys((call.spec.source for call in calls), "there is no sandbox")
            return
        for call in calls:
            is_concerned = call.spec.annotations.boxed and (
                self.mode == "auto" or (self.mode == "ask" and not self._allowing(call))
            )
            if is_concerned or (self.mode == "auto" and _writes_a_path(call)):
                source = call.spec.source
                self._lacks[source] = await self._boxing.lacking(source, quietly=self.mode != "auto")

    def _without_asking(self, call: PlannedCall, lacking: str) -> Decision | ApprovalRequest:
        """The decision, or what the user has to be asked."""
        for rule in self._rules:
            if rule.action == "deny" and self._may_match(rule, call):
                return Decision(
                    allowed=False,
                    by="rule",
                    rule=rule.text,
                    reason=f"the rule 'deny {rule.text}' forbids this call of {call.spec.name}. Only the "
                    f"user can "
                    "change that, in the permissions of the configuration.",
                )
        if self.mode == "bypass":
            return Decision(allowed=True, by="mode")
        if self.mode == "plan" and not (call.spec.annotations.read_only and self._mode_allows(call)):
            return Decision(allowed=False, by="mode", reason=_planned(call))
        asking = next(
            (rule for rule in self._rules if rule.action == "ask" and self._may_match(rule, call)), None
        )
        if call.spec.annotations.boxed and self._boxing is not None and not lacking:
            boxed = self._boxed(call, self._boxing, asking)
            if boxed is not None:
                return boxed
        if asking is not None:
            return self._request(call, f"the rule 'ask {asking.text}'")
        allowing = self._allowing(call)
        if allowing:
            return Decision(allowed=True, by="rule", rule=", ".join(allowing))
        if _may_leak(call):
            return self._request(call, f"mode {self.mode}, in a session that has read something from outside")
        if self._mode_allows(call) or (not lacking and self._is_as_if_boxed(call)):
            return Decision(allowed=True, by="mode")
        why = f"mode {self.mode}"
        if call.spec.annotations.boxed and lacking:
            _, for_boxes, is_boxed = self._granted(call)
            if self.mode == "auto":
                why = f"{why}, and it can't be boxed: {lacking}"
            elif is_boxed:
                why = f"the rule 'allow {for_boxes[0]}' needs boxed = false to hold outside of a sandbox, and {lacking}"
        return self._request(call, why)

    def _request(self, call: PlannedCall, reason: str) -> ApprovalRequest:
        return ApprovalRequest(call=call, rules=self.suggest(call), reason=reason)

    # In the sandbox

    def _boxed(
        self, call: PlannedCall, boxing: Boxing, asking: Rule | None
    ) -> Decision | ApprovalRequest | None:
        """Decide about a call that can be boxed; None where it is decided about as one that runs outside."""
        user_home = self._places.user_home
        wish = boxing.wish(call.spec.name)
        if call.spec.source == "builtin":
            try:
                wish = read_wish(call.input, cwd=self._cwd, user_home=user_home, boxing=boxing)
            except UsageError as error:
                return Decision(allowed=False, by="mode", reason=str(error))
        granted, rules, is_boxed = self._granted(call)
        if self.mode != "auto" and not is_boxed:
            return None
        outside = self._allowing_outside(call)
        missing = granted.lacks(wish.box)
        reason = f": {wish.reason}" if wish.reason else ""
        if asking is None and outside:
            return Decision(allowed=True, by="rule", rule=", ".join(outside))
        if wish.outside and not outside:
            return ApprovalRequest(
                call=call,
                rules=tuple(
                    rule_text(text, RuleOptions(boxed=False)) for text in self.suggest(call, outside=True)
                ),
                reason=f"it wants to run outside the sandbox{reason}",
            )
        if missing:
            return ApprovalRequest(
                call=call,
                rules=(missing.rule(_family(call.spec)),),
                reason=f"it wants {missing.words}{reason}",
                box=granted | missing,
            )
        if asking is not None:
            return replace(self._request(call, f"the rule 'ask {asking.text}'"), box=granted)
        by: Literal["rule", "mode"] = "mode" if self.mode == "auto" else "rule"
        return Decision(allowed=True, by=by, rule=", ".join(rules), box=granted)

    def _granted(self, call: PlannedCall) -> tuple[Box, tuple[str, ...], bool]:
        """What rules add to a call's sandbox, their texts, and whether they alone allow the call in its sandbox.

        A rule with a pattern adds nothing to a line that also runs other programs, unless they only print.
        """
        rules = [
            rule
            for rule in self._rules
            if rule.action == "allow"
            and rule.options.boxed is not False
            and matcher(rule.tool)(call.spec.name)
        ]
        used = [rule for rule in rules if rule.pattern is None]
        subject = call.subject
        if subject is not None:
            used += [rule for rule in rules if literal(rule.pattern or "") == subject]
            used += self._covering_all(rules, subject)
        box = self._programs or Box()
        for rule in used:
            options = rule.options
            box |= Box(
                network=options.network,
                read=self._resolved(options.read),
                write=self._resolved(options.write),
            )
        boxing = [rule for rule in used if rule.options.boxed or (rule.pattern and not rule.holds_outside)]
        texts = tuple(dict.fromkeys(rule.text for rule in used if rule.needs_box or rule in boxing))
        says_so = any(rule.options.boxed for rule in used)
        return box, texts, says_so or (bool(boxing) and not self._allowing(call))

    def _learn_paths(self, rules: Sequence[Rule]) -> None:
        """Resolve the paths of rules, once: a link that a command makes later leads nowhere."""
        granted = [path for rule in rules for path in (*rule.options.read, *rule.options.write)]
        self._paths |= granted_paths(
            [path for path in dict.fromkeys(granted) if path not in self._paths],
            cwd=self._cwd,
            user_home=self._places.user_home,
            areas=self._boxing.areas if self._boxing is not None else (),
        )

    def _resolved(self, paths: Sequence[str]) -> tuple[str, ...]:
        return tuple(self._paths[path] for path in paths if path in self._paths)

    async def _offer_programs(self, calls: Sequence[PlannedCall]) -> None:
        """Ask once whether boxed calls may read the programs on PATH that lie where boxes see nothing.

        Without an answer, or after a no, calls run without them.
        """
        if self._boxing is None or self._approver is None or self._programs is not None:
            return
        async with self._asking:
            boxed = next((call for call in calls if self._runs_boxed(call)), None)
            if boxed is None or self._programs is not None:
                return
            missing = self._granted(boxed)[0].lacks(Box(read=await self._boxing.programs()))
            if not missing:
                self._programs = Box()
                return
            request = ApprovalRequest(
                call=boxed,
                rules=(missing.rule("*"),),
                reason=f"sandboxed commands want {missing.words}: programs on your PATH are there. "
                "After a no, they run without these",
                box=missing,
            )
            answers = await self._approver.approve([request])
            if answers is not None:
                self._programs = missing if answers[0].answer != "no" else Box()
                await self._decision_by_user(request, answers[0])

    def _runs_boxed(self, call: PlannedCall) -> bool:
        return (
            call.spec.annotations.boxed
            and not self._lacks.get(call.spec.source, "")
            and (self.mode == "auto" or (self.mode == "ask" and self._granted(call)[2]))
        )

    @staticmethod
    def _covering_all(rules: Sequence[Rule], command: str) -> list[Rule]:
        """The rules that cover the parts of a command line; none unless each part is covered or only prints."""
        used: list[Rule] = []
        for words in read_commands(command) or ():
            found = [rule for rule in rules if rule.pattern is not None and covers(rule.pattern, words)]
            if not found and not only_prints(words):
                return []
            used += found
        return used

    def _allowing_outside(self, call: PlannedCall) -> tuple[str, ...]:
        """The rules with `boxed = false` that together allow the call; empty unless they cover every part of it."""
        return self._allowing(call, [rule for rule in self._rules if rule.options.boxed is False])

    def _mode_allows(self, call: PlannedCall) -> bool:
        notes = call.spec.annotations
        if call.spec.source != "builtin" and not call.spec.vouched_for:
            return False
        real = self._real(call) if call.spec.pattern_key == PATH_KEY else None
        if real is not None and self._places.may_hold_keys(real):
            return False
        if self.mode in ("auto", "plan") and notes.read_only:
            return True
        is_local = real is None or is_below(real, self._places.own)
        is_destructive = notes.destructive and (
            not call.spec.destroys_with or call.input.get(call.spec.destroys_with) is not None
        )
        return is_local and not is_destructive and not notes.open_world

    def _is_as_if_boxed(self, call: PlannedCall) -> bool:
        """Whether a call writes in mode `auto` what any boxed command could write as well, in the session's folder."""
        if self.mode != "auto" or self._boxing is None or not _writes_a_path(call):
            return False
        real = self._real(call)
        return is_below(real, [os.path.realpath(self._cwd)]) and self._boxing.is_writable(real)

    def _open_for(self, call: PlannedCall) -> None:
        if call.spec.pattern_key == PATH_KEY:
            real = self._real(call)
            if not is_below(real, [str(root) for root in self._roots]):
                self._roots.append(Path(real))

    def _real(self, call: PlannedCall) -> str:
        """The absolute path, without symlinks, of a call that is about a path."""
        return self._forms(call.subject or ".")[-1][-1]

    def _allowing(self, call: PlannedCall, among: Sequence[Rule] | None = None) -> tuple[str, ...]:
        """The rules that together allow the call outside a sandbox; empty unless they cover every part of it."""
        rules = [
            rule
            for rule in (self._rules if among is None else among)
            if rule.action == "allow" and not rule.needs_box and matcher(rule.tool)(call.spec.name)
        ]
        for rule in rules:
            if rule.pattern is None:
                return (rule.text,)
        subject = call.subject
        if subject is None:
            return ()
        if call.spec.pattern_key == PATH_KEY:
            for rule in rules:
                matches = self._path_matcher(rule.pattern or "")
                if all(any(matches(text) for text in texts) for texts in self._forms(subject)):
                    return (rule.text,)
            return ()
        if call.spec.pattern_key == URL_KEY:
            return next(((rule.text,) for rule in rules if url_matches(rule.pattern or "", subject)), ())
        rules = [rule for rule in rules if rule.holds_outside]
        for rule in rules:
            # The rule is the command itself: it need not be parsed.
            if literal(rule.pattern or "") == subject:
                return (rule.text,)
        used: list[str] = []
        for words in read_commands(subject) or ():
            found = next((rule.text for rule in rules if covers(rule.pattern or "", words)), None)
            if found is None:
                return ()
            used.append(found)
        return tuple(dict.fromkeys(used))

    def _may_match(self, rule: Rule, call: PlannedCall) -> bool:
        """Whether a rule that denies or asks matches any part of the call, in any reading."""
        if not matcher(rule.tool)(call.spec.name):
            return False
        if rule.pattern is None:
            return True
        subject = call.subject
        if subject is None:
            # Nobody says which of its fields is meant: any may be.
            return any(
                self._may_match_path(rule.pattern, text)
                or url_may_match(rule.pattern, text)
                or self._may_match_command(rule.pattern, text)
                for text in _texts(call.input)
            )
        if call.spec.pattern_key == PATH_KEY:
            return self._may_match_path(rule.pattern, subject)
        if call.spec.pattern_key == URL_KEY:
            return url_may_match(rule.pattern, subject)
        return self._may_match_command(rule.pattern, subject)

    @staticmethod
    def _may_match_command(pattern: str, command: str) -> bool:
        matches = matcher(pattern)
        if len(command) > MAX_CHARS:
            return True
        return matches(command) or any(matches(words_text(words)) for words in possible_commands(command))

    def _may_match_path(self, pattern: str, path: str) -> bool:
        if len(path) > _MOST_PATH_CHARS:
            return False
        forms = self._forms(path)
        matches = self._path_matcher(pattern)
        if any(matches(text) for texts in forms for text in texts):
            return True
        # Whoever looks through a folder reads what is below it as well.
        real = forms[-1][-1]
        return Path(real).is_dir() and is_below(self._real_head(pattern), [real])

    def _real_head(self, pattern: str) -> str:
        """The folder that holds all that a pattern of paths names; the session's where it begins with a star."""
        head = plain_pattern(pattern, user_home=self._places.user_home)
        folder = between_stars(head)[0].rpartition("/")[0] if "*" in head else head
        return os.path.realpath(self._cwd / folder.replace("\0", ""))

    def _forms(self, path: str) -> list[list[str]]:
        return path_forms(path, cwd=self._cwd, user_home=self._places.user_home)

    def _path_matcher(self, pattern: str) -> Matcher:
        return path_matcher(pattern, user_home=self._places.user_home)


def _family(spec: ToolSpec) -> str:
    """The tools for which a granted host or path is remembered: all of an MCP server, since they are one process."""
    server = re.match(r"mcp__.+?__(?!_)", spec.name) if spec.source == "mcp" else None
    return f"{server[0]}*" if server is not None else spec.name


def _writes_a_path(call: PlannedCall) -> bool:
    """Whether a call is one of a built-in tool that changes the file that it names."""
    spec = call.spec
    return spec.source == "builtin" and spec.pattern_key == PATH_KEY and not spec.annotations.read_only


def _may_leak(call: PlannedCall) -> bool:
    """Whether a call that only reads could carry out what a stranger's words asked for.

    Looking something up with a service that the user chose tells the stranger nothing; opening an address that the
    model chose may, and so may a tool of which only the user vouches that it reads.
    """
    notes = call.spec.annotations
    chooses_place = call.spec.pattern_key == URL_KEY or call.spec.source != "builtin"
    return call.untrusted and notes.read_only and notes.open_world and chooses_place


def _texts(value: Any) -> Iterator[str]:
    """Every text in JSON data, at any depth."""
    waiting = [value]
    while waiting:
        part = waiting.pop()
        if isinstance(part, str):
            yield part
        elif isinstance(part, Mapping):
            waiting.extend(part.values())
        elif isinstance(part, list | tuple):
            waiting.extend(part)


def _planned(call: PlannedCall) -> str:
    shown = (
        call.subject if call.subject is not None else json.dumps(call.input, ensure_ascii=False, default=str)
    )
    if len(shown) > _SHOWN_CHARS:
        shown = f"{shown[:_SHOWN_CHARS]} […]"
    return (
        f"mode plan changes nothing. What would have run: {call.spec.name}({shown}). "
        "Go on reading, and propose a plan with propose_plan."
    )
