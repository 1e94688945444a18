"""`/settings/permissions`: the permission rules as sentences. Open conversations use a change at once."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.config import PermissionRule, RuleAction, own_rules, rule_options
from satchel.errors import ConfigError, UsageError
from satchel.runtime.rule_sentences import sentence
from satchel.runtime.rules import read_rule, remove_rule, write_rule
from satchel.server.pages.kept import kept_of
from satchel.server.pages.queries import FieldReader, part_of
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.settings import settings_now
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)

_ACTIONS: Final[Mapping[str, RuleAction]] = {"allow": "allow", "ask": "ask", "deny": "deny"}
_HERE: Final = "/settings/permissions"
_MOST_SHOWN: Final = 20
_MOST_ASKED: Final = 8


@router.get("/settings/permissions")
async def rules(request: Request, service: Serves) -> Response:
    """All of them, and what was asked lately."""
    return await _page(request, service)


async def _page(
    request: Request, service: Service, *, given: Mapping[str, str] | None = None, problem: str = ""
) -> Response:
    await service.satchel.parts.agreed.look()
    running, trouble = service.satchel.settings, ""
    own: tuple[PermissionRule, ...] = ()
    try:
        now = await settings_now(running)
        own = await anyio.to_thread.run_sync(own_rules, running.config_path)
    except ConfigError as error:
        now, trouble = running, str(error)
    known = {f"{rule.action} {rule.text}" for rule in now.permissions}
    asked = [one for one in await kept_of(request).lately.asked() if f"allow {one.rule}" not in known]
    part = part_of(FieldReader.of(request), _HERE, _MOST_SHOWN, now.permissions)
    return await page(
        request,
        "rules.html",
        title="Permissions",
        status=422 if problem else 200,
        trouble=trouble,
        rules=[(rule, sentence(rule), rule in own) for rule in part.shown],
        part=part,
        asked=[(one, words) for one in asked[:_MOST_ASKED] if (words := _said(one.rule))],
        mode=running.agent.mode,
        given=given or {"action": "allow", "tool": ""},
        problem=problem,
    )


def _rule(action: str, text: str) -> PermissionRule:
    """The rule that somebody wrote.

    Raises:
        UsageError: It is none.
    """
    known = _ACTIONS.get(action)
    if known is None:
        raise UsageError("Choose what the rule does.")
    subject, options = rule_options(text)
    rule = PermissionRule(action=known, tool=subject, options=options)
    read_rule(rule)
    return rule


def _said(text: str) -> str:
    """The sentence of a rule that allows; "" if an earlier release wrote it in a form that is no longer read."""
    try:
        return sentence(_rule("allow", text))
    except UsageError:
        return ""


@router.post("/settings/permissions")
async def add(request: Request, service: Serves) -> Response:
    """Add a rule."""
    form = await form_of(request)
    action, tool = form.get("action"), form.get("tool")
    try:
        rule = _rule(action, tool)
        await write_rule(service.satchel.settings, rule, service.satchel.parts.agreed)
        service.satchel.use_rules((await settings_now(service.satchel.settings)).permissions)
    except (ConfigError, UsageError) as error:
        return await _page(request, service, given={"action": action, "tool": tool}, problem=str(error))
    undo = {"action": rule.action, "tool": rule.text}
    return see_other(
        request,
        _HERE,
        say=Saying(text=f"Added. {sentence(rule)}", action=f"{_HERE}/remove", label="Remove it", fields=undo),
    )


@router.post("/settings/permissions/remove")
async def remove(request: Request, service: Serves) -> Response:
    """Remove a rule."""
    form = await form_of(request)
    rule = _rule(form.get("action"), form.get("tool"))
    await remove_rule(service.satchel.settings, rule, service.satchel.parts.agreed)
    service.satchel.use_rules((await settings_now(service.satchel.settings)).permissions)
    undo = {"action": rule.action, "tool": rule.text}
    return see_other(
        request,
        _HERE,
        say=Saying(
            text=f"Removed, and no longer in force: {rule.action} {rule.text}", action=_HERE, fields=undo
        ),
    )
