"""`/doctor`: the checks of `satchel doctor` and `satchel memory doctor`, with fixes and buttons that apply them."""

from __future__ import annotations

from collections.abc import Sequence

import anyio.to_thread
from fastapi import APIRouter, Request
from starlette.responses import Response

from satchel.errors import NotFound, SatchelError
from satchel.memory import Checkup
from satchel.runtime.health import Check, examine, make_home_private
from satchel.runtime.lines import counted
from satchel.server.pages.kept import Examined, Kept, kept_of
from satchel.server.pages.rendering import Saying, form_of
from satchel.server.pages.site import page, see_other
from satchel.server.service import Serves, Service

router = APIRouter(include_in_schema=False)


@router.get("/doctor")
async def doctor(request: Request, service: Serves) -> Response:
    """The last results. The first visit after a start runs the checks."""
    kept = kept_of(request)
    if kept.examined is None:
        await _examine(kept, service)
    examined = kept.examined
    assert examined is not None, "it has just been examined"
    wrong = [check for check in examined.checks if check.state != "ok"]
    return await page(
        request,
        "doctor.html",
        title="Doctor",
        heading=_heading(examined.checks),
        examined=examined,
        wrong=sorted(wrong, key=lambda check: check.state != "failed"),
        fine=[check for check in examined.checks if check.state == "ok"],
        checkup=kept.checkup,
        counts=lines_of(kept.checkup) if kept.checkup is not None else (),
        has_memory=service.satchel.memory is not None,
    )


def _heading(checks: Sequence[Check]) -> str:
    failed = sum(check.state == "failed" for check in checks)
    warned = sum(check.state == "warning" for check in checks)
    parts = [f"{counted(failed, 'thing')} to fix"] if failed else []
    parts += (
        [f"{warned:,} to look at" if failed else f"{counted(warned, 'thing')} to look at"] if warned else []
    )
    return ", ".join(parts) if parts else "Everything works"


async def _examine(kept: Kept, service: Service) -> None:
    """Check every part. Concurrent visits share one check."""
    clock = service.satchel.clock
    asked_s = clock.monotonic_s()
    async with kept.examining:
        if kept.examined is not None and kept.examined.until_s > asked_s:
            return
        begun_s = clock.monotonic_s()
        checks = await examine(service.satchel)
        now_s = clock.monotonic_s()
        kept.examined = Examined(checks=checks, at=clock.now(), took_s=now_s - begun_s, until_s=now_s)


@router.post("/doctor")
async def again(request: Request, service: Serves) -> Response:
    """Check again."""
    await _examine(kept_of(request), service)
    return see_other(request, "/doctor")


@router.post("/doctor/fix")
async def fix(request: Request, service: Serves) -> Response:
    """Apply the fix that a check proposes."""
    kind = (await form_of(request)).get("fix")
    match kind:
        case "private_home":
            await anyio.to_thread.run_sync(make_home_private, service.satchel.settings.home)
            say = Saying(text="Only you can read it now.")
        case "embed":
            done = await service.memory.embed_pending()
            say = Saying(text=f"{counted(done, 'memory', 'memories')} got a vector.")
        case _:
            raise NotFound(f"There is no fix called {kind[:40]!r} to fix.")
    await _examine(kept_of(request), service)
    return see_other(request, "/doctor", say=say)


# ---- The memories


@router.post("/doctor/memories")
async def check_memories(request: Request, service: Serves) -> Response:
    """Look at every memory and every index."""
    kept_of(request).checkup = await service.memory.check()
    return see_other(request, "/doctor#memories")


@router.post("/doctor/memories/repair")
async def repair_memories(request: Request, service: Serves) -> Response:
    """Repair what can be repaired. Secrets stay: only the command removes them, after asking."""
    try:
        done = await service.memory.repair()
    except SatchelError as error:
        return see_other(request, "/doctor#memories", say=Saying(text=str(error), state="failed"))
    kept_of(request).checkup = await service.memory.check()
    said = [
        text
        for count, text in (
            (done.reindexed, f"{counted(done.reindexed, 'memory', 'memories')} indexed again"),
            (done.orphans, f"{counted(done.orphans, 'orphaned row')} removed"),
            (done.stripped, f"{counted(done.stripped, 'memory', 'memories')} cleaned of injected text"),
            (done.embedded, f"{counted(done.embedded, 'memory', 'memories')} embedded"),
        )
        if count
    ]
    text = f"Repaired: {', '.join(said)}." if said else "There was nothing to repair."
    return see_other(request, "/doctor#memories", say=Saying(text=text))


def lines_of(found: Checkup) -> list[tuple[str, int, str]]:
    """What was counted: its name, how many, and what it means."""
    return [
        ("Duplicates", found.duplicates, "facts with the same words as an earlier one"),
        ("Echoes", found.echoes, "contain what was shown"),
        ("Stale", found.stale, "shown after they had become invalid"),
        ("Faded", found.faded, "not used for long: found only by search"),
        ("Undated", found.undated, "without a known time"),
        ("Secrets", found.secrets, "seem to contain a secret"),
    ]
