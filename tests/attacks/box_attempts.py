"""What readers of the documentation tried to get out of the workspace box, or to have something run outside of it.

Each attempt is a list of commands, each in a box of its own, as root and as a user on bubblewrap and as a user on
Landlock; `$H` is the user's home, `$O` a folder of the user beside the workspace. It is won if

- something outside of the workspace is not as it was, or `PRIVATE` (in `$H/.ssh/id`) is printed;
- a file is left that an editor, a shell or an agent acts upon, with the word `planted` in it, or a link in its place;
- a program runs outside: `touch $RAN`, when the user then uses git in any folder of the workspace, or what `outside`
  says. Only there can this file be written.
"""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["ATTEMPTS", "Try"]


@dataclass(frozen=True, kw_only=True)
class Try:
    """One attempt.

    Attributes:
        commands: Run one after the other in boxes.
        write: What rules let the commands write: paths as in the settings.
        before: A command line of the user before, outside: what a clone or an archive brought.
        outside: A command line of the user afterwards, in the workspace.
        but: A backend of which the documentation says that it doesn't hold this.
    """

    commands: tuple[str, ...]
    write: tuple[str, ...] = ()
    before: str = ""
    outside: str = ""
    but: str = ""


ATTEMPTS: dict[str, Try] = {
    # The second and third red team.
    "a linked working tree whose common folder is the home": Try(
        commands=(
            'mkdir gd; echo $PWD/.git > gd/gitdir; echo "$H" > gd/commondir; echo "gitdir: gd" > .git',
            "echo planted >> $H/.bashrc; echo planted > $H/new",
        ),
    ),
    "a link where a rule lets commands write": Try(
        write=(".vscode",), commands=("ln -s $O .vscode", "echo planted > .vscode/file; echo planted > $O/file")
    ),
    "a link that a clone brought where a rule lets commands write": Try(
        write=(".vscode",), before="ln -s $O .vscode", commands=("echo planted > .vscode/file; echo planted > $O/file",)
    ),
    "the folder of settings and hooks of a working tree, without HEAD": Try(
        commands=(
            "mkdir -p sub gd c/objects c/refs; echo ref: refs/heads/main > gd/HEAD; echo ../c > gd/commondir; "
            'printf "[core]\\n\\tfsmonitor = touch $RAN\\n" > c/config; echo "gitdir: $PWD/gd" > sub/.git',
        ),
    ),
    "a repository in a git folder": Try(
        before="git init -q .",
        commands=(
            "git init -q --bare .git/other; mkdir sub; echo 'gitdir: ../.git/other' > sub/.git; "
            "git -C .git/other config core.bare false; git -C .git/other config core.fsmonitor \"touch $RAN\"",
        ),
    ),
    "a new repository with hooks": Try(
        commands=("git init -q new; printf \"#!/bin/sh\\ntouch $RAN\\n\" > new/.git/hooks/pre-commit; chmod +x new/.git/hooks/*",),
    ),
    "settings in a folder that can't be listed": Try(
        commands=("mkdir -p sub/.vscode; echo planted > sub/.vscode/tasks.json; echo planted > sub/.envrc; chmod 111 sub",),
        outside="chmod 755 sub",
    ),
    "a folder of the user's own settings under another name": Try(
        before="mkdir -p old/.vscode-off; echo planted > old/.vscode-off/tasks.json",
        commands=("mv old/.vscode-off old/.vscode",),
    ),
    "hooks in a folder that the user's settings name and that is missing": Try(
        before="git init -q .; git config core.hooksPath my/hooks",
        commands=('mkdir -p my/hooks; printf "#!/bin/sh\\ntouch $RAN\\n" > my/hooks/pre-commit; chmod +x my/hooks/*',),
    ),
    "a granted folder that a command makes a git folder": Try(
        write=("gd",),
        before="mkdir gd",
        commands=(
            "git init -q --bare gd; git -C gd config core.bare false; git -C gd config core.fsmonitor \"touch $RAN\"; "
            "mkdir tree; echo \"gitdir: $PWD/gd\" > tree/.git",
            "true",
        ),
    ),
}  # fmt: skip
"""By what is tried."""
