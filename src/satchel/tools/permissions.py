"""Decides which calls may run, whatever the source of the tool: by rules, then by the mode, then by asking the user.

Rules that deny come first, then rules that ask, then rules that allow, then the mode.

- `ask`, the default: built-in tools run if they destroy nothing, reach no network and touch no file outside the
  session's own folders. The user is asked about everything else, including reading a file elsewhere.
- `auto`: built-in tools that only read run as well, anywhere. The user is asked about everything else. What a
  stranger's tool says about itself is ignored.
- Once the model has read something from outside, a call that would reach a place of the model's choice on the
  network is asked in `auto` and `plan` as well, unless a rule allows it: an address can carry words out.
- In neither does a tool read by itself where keys and passwords are: outside of the session's folder, what is
  hidden, what the system does not let everybody read, and what `/proc` tells of other programs; and a home, or
  a folder above it, as a whole.
- `plan`: built-in tools that only read run as in `auto`. Nothing else does, whatever a rule allows and without asking:
  the model is told to say what it would do, and the refusal shows the call.
- `bypass`: everything runs but what a rule denies.

Where there is nobody to ask, "asked" means refused, and the refusal names the rule that would have allowed
the call.
"""

from __future__ import annotations

import json
import os.path
import re
import shlex
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, Protocol

import anyio

from satchel.config import Mode, RuleAction
from satchel.errors import SatchelError, UsageError
from satchel.events import Consent
from satchel.tools.paths import Places, is_below, path_forms, path_matcher, plain_pattern
from satchel.tools.patterns import (
    Matcher,
    between_stars,
    covers,
    escaped,
    literal,
    matcher,
    proposed_pattern,
    url_matches,
    url_may_match,
)
from satchel.tools.port import ToolSpec
from satchel.tools.shell import MAX_CHARS, possible_commands, read_commands, words_text
from satchel.tools.urls import plain_url

__all__ = [
    "Approval",
    "ApprovalRequest",
    "Approver",
    "Consent",
    "Decision",
    "Gate",
    "ModeGate",
    "PlannedCall",
    "Rule",
    "parse_rule",
]

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
    """

    call_id: str
    spec: ToolSpec
    input: Mapping[str, Any]
    untrusted: bool = False

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
    """

    allowed: bool
    by: Literal["mode", "rule", "user", "nobody"]
    rule: str = ""
    reason: str = ""


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
        reason: Why it is asked: the mode, or the text of an `ask` rule.
    """

    call: PlannedCall
    rules: tuple[str, ...]
    reason: str


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
    """

    action: RuleAction
    tool: str
    pattern: str | None = None

    @property
    def text(self) -> str:
        """As it is written: `bash(git *)`."""
        return self.tool if self.pattern is None else f"{self.tool}({self.pattern})"


def parse_rule(action: RuleAction, text: str) -> Rule:
    r"""Read a rule.

    Args:
        action: What the rule does.
        text: `bash`, `file_*`, `bash(git *)`, `file_write(src/*)`. A `*` stands for any characters, `\*` for
        a star;
            a pattern that ends in " *" also matches the command without arguments.

    Raises:
        UsageError: It is none; the message says what it should look like.
    """
    match = FORM.fullmatch(text.strip())
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
    return Rule(action=action, tool=match["tool"], pattern=pattern)


class ModeGate:
    """Rules, then a mode, then the user: see the module's docstring."""

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
        """
        self.mode: Mode = mode
        self._rules = list(rules)
        self._approver = approver
        self._cwd = cwd
        self._places = Places.of((cwd, *open_folders), environ or {})
        self._roots = [Path(os.path.realpath(cwd))]
        self._on_always = on_always
        self._asking = anyio.Lock()

    @property
    def rules(self) -> tuple[Rule, ...]:
        """The rules in force, those that the user's answers made last."""
        return tuple(self._rules)

    async def decide(self, calls: Sequence[PlannedCall]) -> Sequence[Decision]:
        """See `Gate`. What has to be asked is asked in one batch; two rounds are asked one after the
        other.
        """
        decided = [self._without_asking(call) for call in calls]
        if not all(isinstance(found, Decision) for found in decided):
            async with self._asking:
                # An answer that another round got meanwhile may have settled it.
                decided = [self._without_asking(call) for call in calls]
                requests = [
                    ApprovalRequest(call=call, rules=self.suggest(call), reason=found)
                    for call, found in zip(calls, decided, strict=True)
                    if not isinstance(found, Decision)
                ]
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

    def suggest(self, call: PlannedCall) -> tuple[str, ...]:
        """The narrowest rules, as texts, that would allow this call and others like it."""
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
        patterns = [proposed_pattern(words) for words in read_commands(subject) or ()]
        if not patterns or None in patterns:
            # Nor one rule for each part: what is right after `cd build &&` may be wrong in another folder.
            return (f"{name}({escaped(subject)})",)
        return tuple(dict.fromkeys(f"{name}({pattern})" for pattern in patterns))

    async def _ask(self, requests: Sequence[ApprovalRequest]) -> list[Decision]:
        if not requests:
            return []
        answers = await self._approver.approve(requests) if self._approver is not None else None
        if answers is None:
            return [self._nobody(request) for request in requests]
        return [await self._take(request, answer) for request, answer in zip(requests, answers, strict=True)]

    async def _take(self, request: ApprovalRequest, approval: Approval) -> Decision:
        name = request.call.spec.name
        if approval.answer == "no":
            said = f" They said: {approval.words}" if approval.words else ""
            return Decision(
                allowed=False,
                by="user",
                reason=f"The user refused this call of {name}.{said} Don't try the same by another way; "
                "do without it or ask what they want.",
            )
        if approval.answer == "once":
            return Decision(allowed=True, by="user")
        reason = ""
        for text in request.rules:
            rule = parse_rule("allow", text)
            self._rules.append(rule)
            if approval.answer == "always" and self._on_always is not None:
                try:
                    await self._on_always(rule)
                except SatchelError as error:
                    reason = f"{text} holds for this session only: {error}"
        return Decision(allowed=True, by="user", rule=", ".join(request.rules), reason=reason)

    def _nobody(self, request: ApprovalRequest) -> Decision:
        name = request.call.spec.name
        allows = " ".join(f"--allow {shlex.quote(text)}" for text in request.rules)
        return Decision(
            allowed=False,
            by="nobody",
            reason=f"{name} has to be allowed by the user ({request.reason}), and there is no terminal to "
            f"ask on. "
            f"What would allow it: {allows}",
        )

    def _without_asking(self, call: PlannedCall) -> Decision | str:
        """The decision, or why the user has to be asked."""
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
        for rule in self._rules:
            if rule.action == "ask" and self._may_match(rule, call):
                return f"the rule 'ask {rule.text}'"
        allowing = self._allowing(call)
        if allowing:
            return Decision(allowed=True, by="rule", rule=", ".join(allowing))
        if _may_leak(call):
            return f"mode {self.mode}, in a session that has read something from outside"
        if self._mode_allows(call):
            return Decision(allowed=True, by="mode")
        return f"mode {self.mode}"

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
        return is_local and not notes.destructive and not notes.open_world

    def _open_for(self, call: PlannedCall) -> None:
        if call.spec.pattern_key == PATH_KEY:
            real = self._real(call)
            if not is_below(real, [str(root) for root in self._roots]):
                self._roots.append(Path(real))

    def _real(self, call: PlannedCall) -> str:
        """The absolute path, without symlinks, of a call that is about a path."""
        return self._forms(call.subject or ".")[-1][-1]

    def _allowing(self, call: PlannedCall) -> tuple[str, ...]:
        """The rules that together allow the call; empty unless they cover every part of it."""
        rules = [
            rule for rule in self._rules if rule.action == "allow" and matcher(rule.tool)(call.spec.name)
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
    return f"mode plan changes nothing. What would have run: {call.spec.name}({shown}). Go on planning, and say so."
