"""Runs programs in the sandbox of their workspace: what they see, what protects it, and what a refusal means."""

from satchel.tools.boxed.notes import moved_notes
from satchel.tools.boxed.workspace import BoxedRun, Workspace, Workspaces

__all__ = ["BoxedRun", "Workspace", "Workspaces", "moved_notes"]
