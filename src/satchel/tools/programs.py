"""What is known of programs: which start others, and which words a star in a rule that allows may stand for.

`bash(git *)` is meant for git, and `git -c alias.x='!rm -r .' x` runs rm. So for each program in `PROGRAMS` a star
stands only for what is listed there: options that run no other program, write no file and read no instructions from
one, unless doing so is what the program is for. An option that is not listed has to be spelled out in the rule;
where
that is not enough to follow the rest of the command, the rule has to be the whole command.

The lists were taken from the manuals of GNU coreutils 9.1, findutils 4.9, sed 4.9, git 2.39
(`--git-completion-helper-
all`), ripgrep 13, curl 7.88, OpenSSH 9.2, tar 1.34 and the like. An option that was forgotten only costs a
question.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field

__all__ = ["ASSIGNMENT", "PROGRAMS", "SPELLED_OUT", "WRAPPERS", "ProgramUsage"]

ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*\+?=.*", re.DOTALL)
WRAPPERS = frozenset([
    "bwrap", "builtin", "busybox", "chroot", "chrt", "command", "doas", "env", "eval", "exec", "firejail",
    "flock", "ionice", "ltrace", "nice", "nohup", "nsenter", "parallel", "prlimit", "proot", "runuser",
    "script", "setpriv", "setsid", "ssh", "stdbuf", "strace", "su", "sudo", "systemd-run", "taskset",
    "time", "timeout", "toybox", "unbuffer", "unshare", "valgrind", "watch", "xargs", "xvfb-run",
])  # fmt: skip
"""Programs whose arguments are another command; a rule that denies looks behind them."""
SPELLED_OUT = frozenset([
    ".", "alias", "at", "batch", "bind", "compgen", "complete", "crontab", "dc", "declare", "ed", "emacs", "enable",
    "entr", "ex", "expect", "export", "fc", "gdb", "getopts", "hash", "history", "jobs", "let", "lldb", "local",
    "mapfile", "nano", "nvim", "perf", "pico", "read", "readarray", "readonly", "rview", "rvim", "screen", "set",
    "shopt", "source", "tmux", "trap", "typeset", "unalias", "unset", "vi", "view", "vim", "vimdiff", "wait",
])  # fmt: skip
"""Programs and builtins that a rule must spell out completely: their words run code or change the meaning of later
commands, and a list of harmless words would be of no use."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramUsage:
    """Which words a star may stand for in calls of a program or one of its subcommands.

    Attributes:
        options: The harmless options. `-ab` are two that take no value, `-n=` takes one in the same word or the next,
            `-M[=]` takes one only in the same word, `-#` is any number. `--all`, `--width=` and `--color[=]` likewise.
        spelled: Options that the rule must spell out, with their values; listed so that the words after them can be
            parsed. The same notation.
        words: For programs that compare whole words, as `find` does: each word; one that begins with a dash has one
            `=` at its end for each value after it.
        execs: Words that are followed by a command, up to `;` or `+`.
        operands: A regular expression for each operand; "" allows any. With this or `first`, globs are not covered.
        first: A regular expression for the first operand, if it differs.
        script_options: Options whose value takes the place of the first operand.
        values: A regular expression for the values of options; "" allows any.
        most: The largest number of operands, or None.
        free: No word does harm.
        bundle: The first word may hold options without a dash.
        negatable: Every long option also has a harmless `--no-` form.
        subcommands: By name; others are not covered.
        runs: The program starts another command, which follows this many operands and any assignments.
        appends: The program appends words to that command.
        rest_after: All words after this many operands are taken as they are.
        proposed: A star may also be proposed to the user: whatever it stands for only reads, and shows no contents of
            files outside the repository.
    """

    options: str = ""
    spelled: str = ""
    words: str = ""
    execs: frozenset[str] = frozenset()
    operands: str = ""
    first: str = ""
    script_options: frozenset[str] = frozenset()
    values: str = ""
    most: int | None = None
    free: bool = False
    bundle: bool = False
    negatable: bool = False
    subcommands: Mapping[str, ProgramUsage] = field(default_factory=dict)
    runs: int | None = None
    appends: bool = False
    rest_after: int | None = None
    proposed: bool = False


_FREE = ProgramUsage(free=True)
_SHOWS = ProgramUsage(free=True, proposed=True)


# ---- git

_DIFF = """
-puswzabRWD -B[=] -U= -M[=] -C[=] -l= -S= -G= -X[=] --patch --no-patch --unified= --function-context --raw
--patch-with-raw
--patch-with-stat --numstat --shortstat --dirstat[=] --cumulative --dirstat-by-file[=] --check --summary --name-only
--name-status --stat[=] --stat-width= --stat-name-width= --stat-graph-width= --stat-count= --compact-summary
--binary
--full-index --color[=] --ws-error-highlight= --abbrev[=] --src-prefix= --dst-prefix= --line-prefix= --no-prefix
--inter-hunk-context= --output-indicator-new= --output-indicator-old= --output-indicator-context=
--break-rewrites[=]
--find-renames[=] --irreversible-delete --find-copies[=] --find-copies-harder --no-renames --rename-empty --follow
--minimal --ignore-all-space --ignore-space-change --ignore-space-at-eol --ignore-cr-at-eol --ignore-blank-lines
--ignore-matching-lines= --indent-heuristic --patience --histogram --diff-algorithm= --anchored= --word-diff[=]
--word-diff-regex= --color-words[=] --color-moved[=] --color-moved-ws= --relative[=] --text --exit-code --quiet
--no-ext-diff --no-textconv --ignore-submodules[=] --submodule[=] --pickaxe-all --pickaxe-regex --rotate-to=
--skip-to=
--find-object= --diff-filter= --cached --staged --merge-base
"""
_LOG = f"""{_DIFF}
-giEFPcm -# -n= -L= -q --oneline --graph --all --branches[=] --tags[=] --remotes[=] --glob= --exclude= --author=
--committer=
--grep= --all-match --invert-grep --regexp-ignore-case --extended-regexp --fixed-strings --perl-regexp --since=
--after=
--until= --before= --max-count= --skip= --date= --format= --pretty[=] --abbrev-commit --decorate[=] --decorate-refs=
--decorate-refs-exclude= --clear-decorations --merges --no-merges --min-parents= --max-parents= --first-parent
--reverse
--topo-order --date-order --author-date-order --left-right --cherry-pick --cherry-mark --cherry --left-only
--right-only
--boundary --simplify-by-decoration --simplify-merges --full-history --ancestry-path[=] --walk-reflogs --notes[=]
--source --use-mailmap --mailmap --log-size --children --parents --relative-date --no-walk[=] --merge --show-pulls
--sparse --dense --remove-empty --cc --diff-merges= --count --objects --timestamp --header --not --bisect --root -t
-r
"""
_NO_GPG = r"(?!.*%[-+ ]?G|.*%\(\*?signature|-?\*?signature).*"
"""A format with `%G?` starts gpg, or what a repository's configuration names in its place; so does sorting by
`signature`."""
_LIST_REFS = """
--contains[=] --no-contains[=] --merged[=] --no-merged[=] --sort= --format= --points-at= --color[=] --ignore-case
"""
_PATHS_INSIDE = r"(?![/~])(?!(?:.*/)?\.\.(?:/|\Z)).*"
"""Not above the folder: `git diff` shows any file where one of its paths lies outside the repository, and `git clone`
writes anywhere."""
_NEW_FOLDER = r"(?![/~])(?i:(?!(?:.*/)?(?:\.\.|\.git|\.satchel)(?:/|\Z))).*"
"""Nor in a folder whose files are run: what is cloned into `.git/hooks` would be."""
_URL = r"(?:https?|git|ssh)://\w.*|\w[\w.-]*@\w[\w.-]*:.*"
_REMOTE = rf"origin|upstream|{_URL}"
"""A place to fetch from: not `ext::` and the like, which name a program, and no folder, whose configuration may be run.
Any other word may be a folder's name, so that other remotes have to be spelled out.
"""
_FETCH = """
-afkpqtv46 -j= --all --prune --prune-tags --tags --no-tags --depth= --deepen= --unshallow --dry-run --force --quiet
--verbose --jobs= --progress --recurse-submodules[=] --atomic --shallow-since= --set-upstream
"""


def _reads(options: str = "", **more: str | int) -> ProgramUsage:
    """A subcommand of git that only reads."""
    return ProgramUsage(options=options, values=_NO_GPG, negatable=True, proposed=True, **more)  # type: ignore[arg-type]


def _writes(options: str = "", **more: str | int) -> ProgramUsage:
    """A subcommand of git that changes a repository or its files."""
    return ProgramUsage(options=options, values=_NO_GPG, negatable=True, **more)  # type: ignore[arg-type]


_GIT = ProgramUsage(
    options="-Ph --no-pager --no-optional-locks --literal-pathspecs --glob-pathspecs --noglob-pathspecs "
    "--icase-pathspecs --no-replace-objects --no-lazy-fetch --version",
    # In another repository, what its configuration names would run.
    spelled="-C= -c= --git-dir= --work-tree= --namespace= --exec-path[=] --config-env= --bare --paginate -p",
    subcommands={
        "blame": _reads(
            "-ltsewcbfnphk -L= -M[=] -C[=] --incremental --root --show-stats --progress --score-debug --show-name "
            "--show-number --porcelain --line-porcelain --show-email --ignore-rev= --color-lines --color-by-age "
            "--minimal --abbrev[=] --since= --reverse --first-parent --date="
        ),
        "cat-file": _reads("-tspe"),
        "cherry": _reads("-v --abbrev[=] --verbose"),
        "count-objects": _reads("-vH --verbose --human-readable"),
        "describe": _reads(
            "--contains --all --tags --long --first-parent --abbrev[=] --exact-match --candidates= --match= "
            "--exclude= "
            "--always --dirty[=] --broken[=] --debug"
        ),
        "diff": _reads(_DIFF, operands=_PATHS_INSIDE),
        "diff-tree": _reads(f"{_DIFF} -rtmc --root --cc --no-commit-id --pretty[=] --format= --always"),
        "for-each-ref": _reads(f"{_LIST_REFS} --count= --exclude= --stdin"),
        "grep": _reads(
            "-iwvnlLchHEGFPaIropWqz -# -e= -A= -B= -C= -m= --cached --recurse-submodules "
            "--invert-match --ignore-case --word-regexp --text --recursive --max-depth= --extended-regexp "
            "--basic-regexp --fixed-strings --perl-regexp --line-number --column --full-name --files-with-matches "
            "--name-only --files-without-match --null --only-matching --count --color[=] --break --heading "
            "--context= --before-context= --after-context= --threads= --show-function --function-context --and "
            "--or "
            "--not --quiet --all-match --max-count=",
            operands=_PATHS_INSIDE,
        ),
        "log": _reads(_LOG),
        "ls-files": _reads(
            "-cdmoiskutvfz -x= --cached --deleted --modified --others --ignored --stage --killed --directory --eol "
            "--empty-directory --unmerged --resolve-undo --exclude= --exclude-standard --full-name "
            "--recurse-submodules --error-unmatch --with-tree= --abbrev[=] --debug --deduplicate --sparse --format="
        ),
        "ls-tree": _reads(
            "-drtlz --long --name-only --name-status --object-only --full-name --full-tree --format= --abbrev[=]"
        ),
        "merge-base": _reads("-a --all --octopus --independent --is-ancestor --fork-point"),
        "name-rev": _reads("--name-only --tags --refs= --exclude= --all --always --undefined"),
        "range-diff": _reads(f"{_DIFF} --creation-factor= --dual-color --left-only --right-only --notes[=]"),
        "reflog": _reads(_LOG, first="show|exists|HEAD(@.*)?"),
        "rev-list": _reads(_LOG),
        "rev-parse": _reads(
            "-q --quiet --verify --short[=] --abbrev-ref[=] --symbolic --symbolic-full-name --all --branches[=] "
            "--tags[=] "
            "--remotes[=] --show-toplevel --git-dir --absolute-git-dir --git-common-dir --is-inside-work-tree "
            "--is-inside-git-dir --is-bare-repository --is-shallow-repository --show-cdup --show-prefix --git-path="
        ),
        "shortlog": _reads(f"{_LOG} -nsec -w[=] --committer --numbered --summary --email --group="),
        "show": _reads(_LOG),
        "show-ref": _reads(
            "-dq -s[=] --tags --heads --branches --verify --head --dereference --hash[=] --abbrev[=] --quiet"
        ),
        "status": _reads(
            "-sbvz -u[=] -M[=] --verbose --short --branch --show-stash --ahead-behind --porcelain[=] --long --null "
            "--untracked-files[=] --ignored[=] --ignore-submodules[=] --column[=] --find-renames[=] --renames"
        ),
        "version": _reads("--build-options"),
        "whatchanged": _reads(_LOG),
        "add": _writes(
            "-nvuAfN --dry-run --verbose --force --update --renormalize --intent-to-add --all --ignore-removal "
            "--refresh "
            "--ignore-errors --ignore-missing --sparse --chmod="
        ),
        "am": _writes("-3qsu --continue --skip --abort --quit --3way --quiet --signoff"),
        "apply": _writes(
            "-Rv3q -p= -C= --check --stat --numstat --summary --index --cached --3way --reverse --reject --recount "
            "--whitespace= --ignore-whitespace --ignore-space-change --verbose --quiet --apply --allow-empty"
        ),
        "bisect": _writes(
            "--first-parent --no-checkout", first="start|good|bad|old|new|skip|reset|log|next|terms"
        ),
        "branch": _writes(
            f"{_LIST_REFS} -avrlqdDmMcCfi -t[=] -u= --verbose --quiet --track[=] --set-upstream-to= "
            "--unset-upstream "
            "--remotes --abbrev[=] --all --delete --move --copy --list --show-current --create-reflog --force "
            "--column[=]"
        ),
        "checkout": _writes(
            "-qfdtml -b= -B= --quiet --force --detach --track[=] --merge --conflict= --orphan= --ours --theirs "
            "--guess "
            "--overlay --progress --recurse-submodules[=] --ignore-other-worktrees"
        ),
        "cherry-pick": _writes(
            "-nxs -m= -X= --continue --abort --skip --quit --no-commit --signoff --mainline= --strategy-option= "
            "--ff "
            "--allow-empty --allow-empty-message --keep-redundant-commits --no-edit"
        ),
        "clean": _writes("-fdxXnq -e= --quiet --dry-run --force --exclude="),
        "clone": _writes(
            "-qvnls46 -b= -o= -j= --verbose --quiet --progress --no-checkout --bare --mirror --local "
            "--no-hardlinks "
            "--recurse-submodules[=] --recursive --jobs= --origin= --branch= --depth= --shallow-since= "
            "--single-branch "
            "--no-tags --shallow-submodules --filter= --sparse",
            first=_URL,
            operands=_NEW_FOLDER,
        ),
        "commit": _writes(
            "-aqvsnoi -m= -C= --quiet --verbose --author= --date= --message= --reuse-message= --fixup= "
            "--squash= --reset-author --signoff --cleanup= --status --all --include --only --no-verify --dry-run "
            "--short --branch --porcelain --long --null --amend --no-edit --untracked-files[=] --allow-empty "
            "--allow-empty-message --no-gpg-sign",
            # What the file says could be read in the log.
            spelled="-F= --file=",
        ),
        # With two operands it writes, and what it writes may be run.
        "config": _writes(
            "-lz --get --get-all --get-regexp --list --null --name-only --includes --show-origin --show-scope "
            "--global "
            "--system --local --worktree --type= --bool --int --path --default=",
            most=1,
        ),
        "fetch": _writes(_FETCH, first=_REMOTE),
        "init": _writes("-q -b= --bare --quiet --initial-branch= --object-format=", operands=_NEW_FOLDER),
        "ls-remote": _writes(
            "-qth --quiet --tags --heads --branches --refs --get-url --sort= --exit-code --symref",
            first=_REMOTE,
        ),
        "merge": _writes(
            "-nqv -m= -X= --stat --summary --log[=] --squash --commit --ff --ff-only --message= --verbose "
            "--quiet --abort "
            "--quit --continue --allow-unrelated-histories --progress --autostash --signoff --no-verify --no-edit "
            "--strategy-option="
        ),
        "mv": _writes("-vnfk --verbose --dry-run --force --sparse"),
        "notes": _writes("--ref=", first="list|show|remove|prune|get-ref"),
        "pull": _writes(
            f"{_FETCH} -nr[=] -X= --rebase[=] --stat --squash --commit --ff --ff-only --autostash --no-edit "
            "--allow-unrelated-histories --strategy-option=",
            first=_REMOTE,
        ),
        # In a folder it would run hooks; and elsewhere, the work would be in a stranger's hands.
        "push": _writes(
            "-ufnqvd46 --verbose --quiet --all --mirror --delete --tags --dry-run --porcelain --force "
            "--force-with-lease[=] --force-if-includes --set-upstream --progress --prune --no-verify "
            "--follow-tags --atomic",
            first="origin|upstream",
        ),
        "rebase": _writes(
            "-iqvfm -X= --onto= --keep-base --no-verify --quiet --verbose --no-stat --signoff --force-rebase "
            "--no-ff "
            "--continue --skip --abort --quit --show-current-patch --apply --merge --interactive --empty= "
            "--keep-empty "
            "--autosquash --update-refs --autostash --rebase-merges[=] --fork-point --root --reapply-cherry-picks "
            "--strategy-option="
        ),
        "remote": _writes(
            "-vn --verbose --all --push --dry-run",
            first="get-url|show|prune|update",
            operands="origin|upstream",
        ),
        "reset": _writes("-qN --quiet --mixed --soft --hard --merge --keep --intent-to-add --refresh"),
        "restore": _writes(
            "-qSWm -s= --source= --staged --worktree --ignore-unmerged --overlay --quiet --progress --merge "
            "--conflict= "
            "--ours --theirs"
        ),
        "revert": _writes(
            "-ns -m= -X= --continue --abort --skip --quit --no-commit --signoff --mainline= --strategy-option= "
            "--no-edit"
        ),
        "rm": _writes("-rfnq --dry-run --quiet --cached --force --ignore-unmatch --sparse"),
        "stash": _writes(
            "-uakqpS -m= --include-untracked --all --keep-index --quiet --message= --index --staged --patch --stat "
            "--name-only --name-status",
            first="push|pop|apply|list|show|drop|save|clear|branch|create|store",
        ),
        "submodule": _writes(
            "-q --quiet --init --recursive --remote --depth= --jobs= --cached --force --progress",
            first="status|summary|init|sync|update|deinit",
        ),
        "switch": _writes(
            "-qfdtm -c= -C= --create= --force-create= --guess --discard-changes --quiet --progress --merge "
            "--conflict= "
            "--detach --track[=] --force --orphan= --ignore-other-worktrees"
        ),
        "tag": _writes(
            f"{_LIST_REFS} -ladfi -n[=] -m= --list --delete --annotate --message= --force --create-reflog "
            "--column[=] --no-sign",
            spelled="-F= --file=",
        ),
        "worktree": _writes(
            "-fdvz -b= -B= --detach --force --porcelain --verbose --checkout --dry-run --expire= --track",
            first="list|add|prune|remove|move|lock|unlock",
            operands=_NEW_FOLDER,
        ),
    },
)


# ---- Scripts of sed and awk

# No text fits in two ways: else a script that fits in none would take time without bound.
_SED_PART = r"(?:[^/\\\n\[]|\\[^\n]|\[(?:\^[^]/\\\n]|[^]^/\\\n])[^]/\\\n]*\])*"
_SED_ADDRESS = rf"(?:\d+(?:~\d+)?|\$|/{_SED_PART}/I?)"
_SED_COMMAND = (
    rf"(?:{_SED_ADDRESS}(?:,(?:{_SED_ADDRESS}|[+~]\d+))?[ \t]*(?:![ \t]*)?)?"
    rf"(?:[pdqQ=lnNDGghHxPF]|s/{_SED_PART}/(?:[^/\\\n]|\\[^\n])*/[gpIi0-9]*)"
)
_SED_SCRIPT = rf"[ \t;\n]*{_SED_COMMAND}[ \t]*(?:[;\n][ \t;\n]*{_SED_COMMAND}[ \t]*)*(?:[;\n][ \t;\n]*)?"
"""Addresses, and the commands that print, delete and substitute. Left out are `e`, `w`, `r`, `s///e` and `s///w`, and
brackets that hold a slash, which versions of sed read differently."""
_AWK_PROGRAM = r"(?!.*(?:system|getline))(?:[^|>@\\]|\\[^\n])*"
"""No pipe, no redirection, no `system`, no `getline`, none of gawk's indirect calls and includes."""
_AWK = ProgramUsage(options="-F= -v=", first=_AWK_PROGRAM)
_SED = ProgramUsage(
    options="-nErsuz -e= --quiet --silent --regexp-extended --separate --expression=",
    spelled="-i --in-place[=]",
    first=_SED_SCRIPT,
    script_options=frozenset({"-e", "--expression"}),
)


_PRINTF_FORMAT = (
    r"(?:[^%]|%%|%\([^()]*\)T"
    r"|%[-+ #0']*(?:[1-9][0-9]*|\*)?(?:\.(?:[0-9]+|\*)?)?[diouxXeEfFgGaAcsbq])*"
)


# ---- The table

_HARMLESS = (
    "basename", "df", "dirname", "echo", "false", "free", "groups", "id", "ls", "nproc", "pwd", "readlink",
    "realpath", "seq", "sleep", "stat", "true", "tty", "type", "uname", "uptime", "which", "whoami",
)  # fmt: skip
"""No word does harm, and none of these shows the contents of files."""
_READERS = (
    "cat", "cd", "cksum", "cmp", "column", "comm", "cut", "egrep", "expand", "fgrep", "fmt", "fold", "grep", "head",
    "hexdump", "join", "jq", "md5sum", "nl", "od", "paste", "pgrep", "pidof", "pr", "printenv", "ps", "rev", "sha1sum",
    "sha256sum", "sha512sum", "strings", "sum", "tac", "tail", "tr", "unexpand",
)  # fmt: skip
"""No word does harm, but these show files, arguments or environments, or change the folder of the next command."""
_FIND = ProgramUsage(
    words="-H -L -P -not -a -and -o -or ( ) ! , -true -false -depth -d -mount -xdev -daystart -follow -noleaf "
    "-warn "
    "-nowarn -ignore_readdir_race -maxdepth= -mindepth= -regextype= -amin= -anewer= -atime= -cmin= -cnewer= "
    "-ctime= -empty "
    "-executable -fstype= -gid= -group= -ilname= -iname= -inum= -ipath= -iregex= -iwholename= -links= -lname= "
    "-mmin= "
    "-mtime= -name= -newer= -newerat= -newerct= -newermt= -newermm= -nogroup -nouser -path= -perm= -readable "
    "-regex= "
    "-samefile= -size= -type= -uid= -used= -user= -wholename= -writable -xtype= -print -print0 -printf= -ls "
    "-prune -quit",
    execs=frozenset({"-exec", "-execdir", "-ok", "-okdir"}),
    proposed=True,
)
_FD = ProgramUsage(
    options="-HIuUsiFgapL01q -d= -e= -t= -E= -S= -c= -j= --hidden --no-ignore --no-ignore-vcs --unrestricted "
    "--case-sensitive --ignore-case --fixed-strings --glob --absolute-path --full-path --follow --print0 "
    "--max-depth= "
    "--min-depth= --exact-depth= --extension= --type= --exclude= --size= --color= --threads= --max-results= "
    "--quiet "
    "--changed-within= --changed-before= --prune",
    proposed=True,
)
_TAR = ProgramUsage(
    options="-ctxruvzjJakmhOSpw -f= -C= --create --list --extract --get --append --update --verbose --gzip "
    "--bzip2 --xz "
    "--zstd --auto-compress --keep-old-files --skip-old-files --dereference --to-stdout --sparse --file= "
    "--directory= "
    "--strip-components= --exclude= --exclude-vcs --no-same-owner --no-same-permissions --preserve-permissions "
    "--wildcards "
    "--no-recursion --one-top-level[=] --totals",
    spelled="-I= -F= --use-compress-program= --to-command= --checkpoint[=] --checkpoint-action= --info-script= "
    "--new-volume-script= --rmt-command= --rsh-command= -T= --files-from= -P --absolute-names",
    # `host:file` starts ssh.
    values=r"[^:]*",
    bundle=True,
)

# Variables are assigned by operands, and any of them may be a command.
_MAKE = ProgramUsage(
    options="-knsBiqwSt -j[=] -l[=] -O[=] --jobs[=] --keep-going --dry-run --just-print --silent --quiet "
    "--always-make "
    "--ignore-errors --print-directory --no-print-directory --output-sync[=] --trace --touch --question",
    spelled="-C= -f= -I= -W= -o= --directory= --file= --makefile= --include-dir= --eval=",
    operands=r"[^=]*",
)

PROGRAMS: Mapping[str, ProgramUsage] = {
    **dict.fromkeys(_HARMLESS, ProgramUsage(free=True, proposed=True)),
    **dict.fromkeys(_READERS, ProgramUsage(free=True)),
    **dict.fromkeys(("awk", "gawk", "mawk", "nawk"), _AWK),
    **dict.fromkeys(("fd", "fdfind"), _FD),
    **dict.fromkeys(("find", "gfind"), _FIND),
    **dict.fromkeys(("sed", "gsed"), _SED),
    **dict.fromkeys(("tar", "gtar", "bsdtar"), _TAR),
    "command": ProgramUsage(spelled="-pvV", runs=0),
    "curl": ProgramUsage(
        options="-sSLIikvfgG46 -X= -m= -A= -e= -r= --silent --show-error --location --head --include --verbose "
        "--fail "
        "--fail-with-body --globoff --compressed --request= --max-time= --connect-timeout= --retry= --retry-delay= "
        "--user-agent= --referer= --range= --http1.1 --http2 --ipv4 --ipv6 --no-progress-meter --max-redirs=",
        operands=r"https?://[^@{}]*",
        # `@name` sends a file.
        values=r"[^@].*",
    ),
    "date": ProgramUsage(
        options="-uR -d= -r= -I[=] --date= --reference= --utc --universal --rfc-email --rfc-3339= --iso-8601[=]",
        operands=r"\+.*",
        proposed=True,
    ),
    "diff": ProgramUsage(
        options="-qsyabBiwENprutTde -c -# -U= -C= -W= -I= -x= --brief --report-identical-files --side-by-side "
        "--text "
        "--unified[=] --context[=] --recursive --new-file --ignore-case --ignore-all-space --ignore-space-change "
        "--ignore-blank-lines --color[=] --width= --exclude= --strip-trailing-cr --suppress-common-lines --minimal "
        "--show-c-function",
    ),
    "du": ProgramUsage(
        options="-0abcDHhkLlmPSsx -d= -B= -t= --all --apparent-size --block-size= --bytes --total --dereference "
        "--max-depth= --human-readable --inodes --one-file-system --separate-dirs --summarize --exclude= --time[=]",
        proposed=True,
    ),
    "env": ProgramUsage(
        spelled="-i0v -u= -C= --ignore-environment --null --unset= --chdir= --default-signal[=] --ignore-signal[=]",
        runs=0,
    ),
    "file": ProgramUsage(
        options="-bihkLNnpr0 --brief --mime --mime-type --mime-encoding --keep-going --dereference",
        proposed=True,
    ),
    "git": _GIT,
    "gmake": _MAKE,
    "less": ProgramUsage(options="-NSRXFEeiIMmnqQrsuUw -#", operands=r"[^+].*"),
    "make": _MAKE,
    "man": ProgramUsage(options="-afkwW -s= --all --whatis --apropos --where --path", operands=r"[\w.+:-]+"),
    "nice": ProgramUsage(spelled="-n= --adjustment=", runs=0),
    "nohup": ProgramUsage(runs=0),
    # `%n` assigns to the variable that the next word names: to PATH, for example.
    "printf": ProgramUsage(first=_PRINTF_FORMAT, proposed=True),
    "rg": ProgramUsage(
        options="-iSsvnNlLcowxuFPUp0HIahq.# -e= -f= -g= -t= -T= -A= -B= -C= -m= -j= -M= -E= -r= -d= --regexp= "
        "--file= "
        "--ignore-case --smart-case --case-sensitive --invert-match --line-number --no-line-number "
        "--files-with-matches "
        "--files-without-match --count --count-matches --only-matching --word-regexp --line-regexp --unrestricted "
        "--fixed-strings --pcre2 --multiline --multiline-dotall --pretty --null --with-filename --no-filename "
        "--text "
        "--quiet --hidden --no-ignore --no-ignore-vcs --no-ignore-parent --follow --glob= --iglob= --type= "
        "--type-not= "
        "--type-list --after-context= --before-context= --context= --max-count= --max-depth= --max-columns= "
        "--max-filesize= --threads= --encoding= --replace= --heading --no-heading --color= --colors= --column "
        "--json "
        "--stats --sort= --sortr= --trim --vimgrep --files --passthru --no-messages --one-file-system --crlf "
        "--debug "
        "--no-config",
    ),
    "rsync": ProgramUsage(
        options="-avzrlptgoDnhPuxcqRHASLkKWiIOJSbdm46 --archive --verbose --compress --recursive --links "
        "--perms --times "
        "--dry-run --human-readable --progress --partial --update --checksum --quiet --relative --delete --stats "
        "--exclude= --include= --itemize-changes --ignore-existing --existing --size-only --bwlimit= --max-size= "
        "--min-size= --info= --no-perms --no-owner --no-group --one-file-system --mkpath --delete-after",
        spelled="-e= --rsh= --rsync-path= -f= --filter= --files-from=",
    ),
    "scp": ProgramUsage(options="-rpqCv46BT -P= -l= -i= -c=", spelled="-S= -o= -F= -J="),
    "setsid": ProgramUsage(spelled="-cfw --ctty --fork --wait", runs=0),
    "sort": ProgramUsage(
        options="-bdfghiMnRrVCcmsuz -k= -t= -S= --key= --field-separator= --buffer-size= --unique --reverse "
        "--numeric-sort "
        "--human-numeric-sort --general-numeric-sort --version-sort --ignore-case --stable --check[=] --merge "
        "--parallel= "
        "--random-sort --month-sort --zero-terminated --dictionary-order --ignore-leading-blanks --debug --sort=",
        spelled="-o= -T= --output= --temporary-directory= --compress-program=",
    ),
    "split": ProgramUsage(
        options="-deux -l= -b= -C= -n= -a= --lines= --bytes= --line-bytes= --number= --suffix-length= "
        "--numeric-suffixes[=] --elide-empty-files --verbose",
        spelled="--filter=",
    ),
    # What follows the host and the first word runs there.
    "ssh": ProgramUsage(
        options="-46aCfgkNnqTtvxy -p= -l= -i=",
        spelled="-AGMsVXYK -o= -F= -J= -L= -R= -D= -W= -b= -c= -E= -e= -I= -m= -O= -P= -Q= -S= -w= -B=",
        first=r"[\w.@\[\]][\w.@\[\]-]*",
        rest_after=2,
    ),
    "stdbuf": ProgramUsage(spelled="-i= -o= -e= --input= --output= --error=", runs=0),
    "sudo": ProgramUsage(
        spelled="-AbEHnkPS -u= -g= --user= --group= --non-interactive --preserve-env[=] --set-home", runs=0
    ),
    "test": ProgramUsage(
        words="-e= -f= -d= -r= -w= -x= -s= -L= -h= -n= -z= -b= -c= -p= -S= -O= -G= -nt= -ot= -ef= -eq= -ne= "
        "-lt= -le= "
        "-gt= -ge= -a -o ! = != < > ( )",
        proposed=True,
    ),
    "timeout": ProgramUsage(
        spelled="-fpv -k= -s= --foreground --preserve-status --verbose --kill-after= --signal=", runs=1
    ),
    "tree": ProgramUsage(
        options="-adfilxpsughDFQNqACnvtcUrJX -L= -P= -I= --dirsfirst --filesfirst --noreport --prune --du --si "
        "--gitignore "
        "--inodes --filelimit= --matchdirs --ignore-case --sort= --timefmt= --charset= --metafirst",
        spelled="-o= -R -H= -T=",
        proposed=True,
    ),
    # Its second operand is written.
    "uniq": ProgramUsage(
        options="-cdDuiz -f= -s= -w= --count --repeated --unique --ignore-case --skip-fields= --skip-chars= "
        "--check-chars= "
        "--zero-terminated",
        most=1,
    ),
    "wc": ProgramUsage(options="-clmLw --bytes --chars --lines --max-line-length --words", proposed=True),
    "wget": ProgramUsage(
        options="-qvS46 -t= -T= -w= -U= --quiet --verbose --no-verbose --spider "
        "--server-response --tries= --timeout= --wait= --user-agent= --max-redirect= --https-only",
        spelled="-O= -P= --output-document= --directory-prefix=",
        operands=r"https?://.*",
    ),
    "xargs": ProgramUsage(
        spelled="-0rtxo -n= -P= -L= -s= -a= -d= -I= -E= --null --no-run-if-empty --verbose --max-args= "
        "--max-procs= "
        "--max-lines= --max-chars= --delimiter= --arg-file= --replace[=] --exit",
        runs=0,
        appends=True,
    ),
    "zip": ProgramUsage(
        options="-rqjuXyvf0123456789 -x= -i= --recurse-paths --quiet --junk-paths --symlinks",
    ),
}
