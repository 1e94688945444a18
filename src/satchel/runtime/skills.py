"""Skills that others wrote, in an open Satchel: where they are, and what their scripts run in."""

from __future__ import annotations

from satchel.capabilities.skill_tools import SkillTools
from satchel.capabilities.skills import SkillFolder, Skills
from satchel.config import SKILL_FOLDERS, Settings
from satchel.runtime.sandboxes import Sandboxes


def skill_tools(settings: Settings, sandboxes: Sandboxes) -> SkillTools:
    """The tools for the user's own skills and for those of a trusted project. Nothing is looked at yet."""
    folders = [SkillFolder(path=settings.home / "skills", origin="user")]
    if settings.project is not None and settings.project_trusted:
        project = settings.project.resolve()
        folders += [
            SkillFolder(
                path=project / name, origin="project", fence=project, accepted=settings.project_skills
            )
            for name in SKILL_FOLDERS
        ]
    return SkillTools(Skills(folders), sandbox=sandboxes.get, layers=sandboxes.layer)
