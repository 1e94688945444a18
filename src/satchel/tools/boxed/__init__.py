"""Runs programs in the sandbox of their workspace: what they see, what protects it, and what a refusal means."""

from satchel.tools.boxed.notes import moved_notes as moved_notes
from satchel.tools.boxed.workspace import BoxedRun as BoxedRun
from satchel.tools.boxed.workspace import Workspace as Workspace
from satchel.tools.boxed.workspace import Workspaces as Workspaces
