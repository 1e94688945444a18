"""Where the git folder of a workspace is that lies below the top of its repository."""

from __future__ import annotations

import os
from pathlib import Path


def git_around(workspace: Path, *, stop: Path) -> Path | None:
    """The git folder of the repository that holds a workspace below its top, so that commits work there too.
    `workspace` is a real path. Nothing is looked for in the folder `stop`, the user's home, and above.
    """
    if os.path.lexists(workspace / ".git"):
        return None
    for folder in workspace.parents:
        if folder == stop or stop.is_relative_to(folder):
            return None
        git = folder / ".git"
        if git.is_dir() and not git.is_symlink() and (git / "HEAD").is_file():
            return git
    return None
