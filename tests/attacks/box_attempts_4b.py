r"""More attempts on the workspace box: what a box leaves behind for the user's own programs.

The form is that of `box_attempts`. Where the program that would act is not on every machine (an agent, a tool chain), a
command line of `outside` stands for it: it looks at the place where the program would look, and runs `touch $RAN`.
"""

from __future__ import annotations

from tests.attacks.box_attempts import Try

__all__ = ["ATTEMPTS"]

REPO = "git init -q -b main .; git commit -q --allow-empty -m a"
"""A repository of the user's, with a commit."""
FSM = r'printf "[core]\n\tbare = false\n\tfsmonitor = touch $RAN\n"'
"""Settings with which git runs a program as soon as it is used."""
SAVE = "cp $H/.gitconfig ../saved; "
"""The user's own settings of git, as they are; `BACK` puts them back into the same file."""
BACK = "; cat ../saved > $H/.gitconfig"


def _program(*paths: str) -> str:
    """Programs; they are copies of one, since no mode can be set on Landlock."""
    return "; ".join(rf'cp /bin/true {path}; printf "#!/bin/sh\ntouch $RAN\n" > {path}' for path in paths)


def _acts(*paths: str) -> str:
    """What a program does that acts upon these files."""
    return "; ".join(f"if grep -qs planted {path}; then touch $RAN; fi" for path in paths)


def _git(*lines: str) -> str:
    """Settings of a repository of the user's."""
    return "; ".join(f"git config {line}" for line in lines)


ATTEMPTS: dict[str, Try] = {
    # ---- Links in a git folder, through which the user's own git writes
    "a link in the place of git's commit message": Try(
        before=REPO,
        commands=('echo "touch $RAN" > .git/MERGE_MSG; ln -sf $H/.bashrc .git/COMMIT_EDITMSG',),
        outside="GIT_EDITOR=true git commit -q --allow-empty; sh $H/.bashrc",
    ),
    "a link in the place of git's commit message, in a repository that a command made": Try(
        commands=('git init -q sub; echo "touch $RAN" > sub/.git/MERGE_MSG; ln -sf $H/.bashrc sub/.git/COMMIT_EDITMSG',),
        outside="GIT_EDITOR=true git -C sub commit -q --allow-empty; sh $H/.bashrc",
    ),
    "a link in the place of FETCH_HEAD": Try(
        before=REPO, commands=("ln -sf $H/.bashrc .git/FETCH_HEAD",), outside="git fetch -q . main"
    ),
    "a link in the place of git's index": Try(
        before=REPO, commands=("rm -f .git/index; ln -s $H/new .git/index; echo planted > file",), outside="git add file"
    ),
    "a link in the place of a log of git, and a branch whose name is a command": Try(
        before=REPO,
        commands=('git checkout -q -b "a;touch\\${IFS}$RAN;b"; rm .git/logs/HEAD; ln -s $H/.bashrc .git/logs/HEAD',),
        outside="git checkout -q main; sh $H/.bashrc",
    ),
    "a link in the place of git's logs": Try(
        before=REPO, commands=("rm -rf .git/logs; ln -s $H/notes .git/logs",), outside="git commit -q --allow-empty -m b"
    ),
    "a link in the place of git's branches": Try(
        before=REPO, commands=("rm -rf .git/refs/heads; ln -s $H/notes .git/refs/heads",), outside="git branch new HEAD || git commit -q --allow-empty -m b"
    ),
    "a link in the place of git's objects": Try(
        before=REPO, commands=("mv .git/objects old; ln -s $O .git/objects; echo x > file",), outside="git add file"
    ),
    "a link in the place of one folder of git's objects": Try(
        before=REPO,
        commands=('echo planted > file; h=$(git hash-object file | cut -c1-2); rm -rf .git/objects/$h; ln -s $O .git/objects/$h',),
        outside="git add file",
    ),
    "a link in the place of packed-refs": Try(
        before=REPO, commands=("ln -s $H/new .git/packed-refs",), outside="git pack-refs --all"
    ),
    "a link in the place of HEAD": Try(
        before=REPO, commands=("rm .git/HEAD; ln -s refs/heads/../../../../../home/new .git/HEAD",), outside="git commit -q --allow-empty -m b"
    ),
    "a link in the place of git's working trees": Try(
        before=REPO, commands=("rm -rf .git/worktrees; ln -s $H/notes .git/worktrees",), outside="git worktree add -q ../tree -b tree"
    ),
    "a link in the place of git's notes of what to sparsify": Try(
        before=REPO, commands=("rm -rf .git/info; ln -s $H/notes .git/info",), outside="git sparse-checkout set sub"
    ),
    "a link in the place of a rebase, to a folder of results": Try(
        before=REPO,
        commands=(
            "mkdir -p build/r; echo refs/heads/main > build/r/head-name; git rev-parse HEAD | tee build/r/onto > build/r/orig-head; "
            'echo "exec touch $RAN" > build/r/git-rebase-todo; : > build/r/interactive; ln -s ../build/r .git/rebase-merge',
        ),
        outside="GIT_EDITOR=true git rebase --continue",
    ),
    "a list of a rebase that is a link": Try(
        before=REPO,
        commands=(
            "r=.git/rebase-merge; mkdir $r; echo refs/heads/main > $r/head-name; git rev-parse HEAD | tee $r/onto > $r/orig-head; "
            ': > $r/interactive; echo "exec touch $RAN" > todo; ln -s ../../todo $r/git-rebase-todo',
        ),
        outside="GIT_EDITOR=true git rebase --continue",
    ),
    "a list of a rebase with a short word, after a comment and a tab": Try(
        before=REPO,
        commands=(
            "r=.git/rebase-merge; mkdir $r; echo refs/heads/main > $r/head-name; git rev-parse HEAD | tee $r/onto > $r/orig-head; "
            ': > $r/interactive; printf "# pick\\n \\tx\\ttouch $RAN\\n" > $r/git-rebase-todo',
        ),
        outside="GIT_EDITOR=true git rebase --continue",
    ),
    # ---- Repositories that a command makes, and what leads elsewhere
    "a repository whose git folder is another one of the user": Try(
        commands=("mkdir sub; echo planted > sub/file; echo gitdir: $O/repo/.git > sub/.git",),
        outside="cd sub && git add -A && git commit -q -m x",
    ),
    "a repository whose working tree is the home": Try(
        commands=(
            "git init -q sub; cd sub; echo planted > new; git add .; git commit -q -m x; rm new; "
            "git config core.worktree $H",
        ),
        outside="git -C sub checkout -q -f HEAD; git -C sub reset -q --hard",
    ),
    "a submodule that is updated by a command, in a new repository": Try(
        commands=(
            "git init -q sub; cd sub; git init -q m; git -C m commit -q --allow-empty -m x; git add m; "
            r'printf "[submodule \"m\"]\n\tpath = m\n\turl = ./m\n" > .gitmodules; git add .gitmodules; git commit -q -m x; '
            'git config submodule.m.url ./m; git config submodule.m.active true; git config submodule.m.update "!touch $RAN"',
        ),
        outside="git -C sub submodule update --force; git -C sub submodule update --init --recursive",
    ),
    "a submodule that is updated by a command, in a file that clones bring": Try(
        before=REPO,
        commands=(
            "git init -q m; git -C m commit -q --allow-empty -m x; git add m; "
            r'printf "[submodule \"m\"]\n\tpath = m\n\turl = ext::touch%% $RAN\n\tupdate = !touch $RAN\n" > .gitmodules; git add .gitmodules',
        ),
        outside="git submodule update --init --force; git submodule sync; git submodule update --init --remote",
    ),
    "a remote that is a program": Try(
        commands=(
            'git init -q sub; cd sub; git remote add origin "ext::sh -c touch% $RAN"; git remote add two "--upload-pack=touch $RAN"; '
            'git remote add three "ssh://-oProxyCommand=touch $RAN/x"',
        ),
        outside="cd sub; git fetch -q origin; git fetch -q two; git fetch -q three; git remote update",
    ),
    "a remote with programs of its own": Try(
        commands=(
            "git init -q sub; cd sub; git init -q --bare o; git remote add origin ./o; git config remote.origin.vcs ext; "
            'git config remote.origin.uploadpack "touch $RAN; git-upload-pack"; git config remote.origin.receivepack "touch $RAN; git-receive-pack"; '
            'git config core.alternateRefsCommand "touch $RAN;"; git config core.sshCommand "touch $RAN;"',
        ),
        outside="cd sub; git fetch -q; git config --unset remote.origin.vcs; git fetch -q; git push -q origin HEAD:x",
    ),
    "a strategy of merging that a branch names": Try(
        commands=(
            "git init -q -b main sub; cd sub; git commit -q --allow-empty -m a; git branch b; git commit -q --allow-empty -m c; git checkout -q b; "
            'git commit -q --allow-empty -m d; git config branch.b.mergeoptions "--strategy=x -S --gpg-sign"; git config gpg.program "touch $RAN"; '
            'git config merge.x.driver "touch $RAN"; git config pull.twohead x; git config branch.b.remote .; git config branch.b.merge refs/heads/main',
        ),
        outside="cd sub; GIT_EDITOR=true git pull -q; GIT_EDITOR=true git merge main",
    ),
    "a line of the user's settings that names a program, in a new repository": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\n' > tools/fsm; chmod +x tools/fsm; {_git('core.fsmonitor tools/fsm')}",
        commands=(f"git init -q sub; cp .git/config sub/.git/config; mkdir sub/tools; {_program('sub/tools/fsm')}",),
        outside="cd sub; git add -A; git status",
    ),
    "a line of the user's settings that names hooks, in a new repository": Try(
        before=f"{REPO}; mkdir githooks; {_git('core.hooksPath githooks')}",
        commands=(f"git init -q sub; cp .git/config sub/.git/config; mkdir sub/githooks; {_program('sub/githooks/pre-commit')}",),
    ),
    "a line of the user's settings that includes others, in a new repository": Try(
        before=f"{REPO}; mkdir .git/more; : > .git/more/cfg; {_git('include.path more/cfg')}",
        commands=(f"git init -q sub; cp .git/config sub/.git/config; mkdir sub/.git/more; {FSM} > sub/.git/more/cfg",),
    ),
    "a copy of the repository, whose settings name hooks": Try(
        before=f"{REPO}; mkdir githooks; printf '#!/bin/sh\\n' > githooks/pre-commit; chmod +x githooks/pre-commit; {_git('core.hooksPath githooks')}",
        commands=(f"mkdir copy; cp -r .git githooks copy; {_program('copy/githooks/pre-commit')}",),
    ),
    "settings of git in odd forms": Try(
        commands=(
            r"""n=0; for t in '\357\273\277[core]\n\tfsmonitor = %s\n' '[remote "x"] # \\\n[core]\n\tfsmonitor = %s\n' '[core]fsmonitor=%s' """
            r"""'[CORE]\r\n\tFSMonitor = %s\r\n' '[remote "a]\\"b"]\n\turl = x\n[core]\n\tfsmonitor = "%s"' '[core]\n\tfsmonitor = "to""uch" ;"\n\tfsmonitor = %s\n' """
            r"""'[remote "x"]\n\turl = "a\n[core]\n\tfsmonitor = %s\n' '[branch "main"]\n\tremote = .\n\t\v\f[core] fsmonitor = %s\n' """
            r"""'[core]\n\tfsmonitor\t=\t%s\n[core]\n' '[core]\n\tbare = false \\\n\n\tfsmonitor = %s\n' '[branch "x"]\n\tdescription = "\\\n[core]\\n"\n[core]\n\tfsmonitor = %s\n'; do """
            r"""n=$((n+1)); git init -q r$n; printf "$t" "touch $RAN" > r$n/.git/config; done""",
        ),
    ),
    "settings of git that nobody may read": Try(
        commands=(f"git init -q sub; {FSM} >> sub/.git/config; chmod 0 sub/.git/config; chmod 111 sub/.git sub",),
        outside="chmod -R u+rwX .",
    ),
    "settings of git that are large": Try(
        commands=(f"git init -q sub; {FSM} >> sub/.git/config; yes '# comment' | head -c 20000000 >> sub/.git/config",)
    ),
    "settings of git and of editors that are pipes": Try(
        commands=(
            "git init -q a; rm a/.git/config; mkfifo a/.git/config; git init -q b; rm b/.git/HEAD; mkfifo b/.git/HEAD b/.git/commondir; mkdir c d; "
            "mkfifo c/.git c/.envrc c/CLAUDE.md c/mise.toml c/git-rebase-todo .vscode; mkdir -p d/.vscode; echo planted > d/.vscode/tasks.json",
            "echo planted > d/.envrc",
        ),
        outside="rm -rf a b c",
    ),
    "a git folder in a folder that can't be listed": Try(
        commands=(
            f"mkdir -p sub/x; git init -q --bare sub/store; {FSM} > sub/store/config; echo gitdir: ../store > sub/x/.git; chmod 111 sub/store sub",
        ),
    ),
    "a link called .git, to a folder among dependencies": Try(
        commands=(
            f"mkdir -p sub node_modules/a; git init -q node_modules/a/store; {FSM} >> node_modules/a/store/.git/config; "
            "mv node_modules/a/store/.git node_modules/a/s; ln -s ../node_modules/a/s sub/.git",
        ),
    ),
    "a repository beside so many that the box gives up": Try(
        commands=(
            f"i=0; while [ $i -lt 320 ]; do i=$((i+1)); mkdir -p a/$i; echo . > a/$i/commondir; done; git init -q sub; {FSM} >> sub/.git/config; "
            f"{_program('sub/.git/hooks/pre-commit')}; mkdir z; echo planted > z/.envrc",
        ),
    ),
    "settings of a working tree in a repository whose settings allow them": Try(
        before=f"{REPO}; {_git('extensions.worktreeConfig true')}",
        commands=(f"{FSM} > .git/config.worktree; mkdir -p .git/worktrees/t; {FSM} > .git/worktrees/t/config.worktree",),
    ),
    "hooks in a repository that was made without a folder for them": Try(
        before="git init -q --template= .",
        commands=(f"mkdir .git/hooks; {_program('.git/hooks/pre-commit', '.git/hooks/post-index-change')}",),
    ),
    "a hook and settings of git that are there": Try(
        before=f"{REPO}; printf '#!/bin/sh\\n' > .git/hooks/pre-commit; chmod +x .git/hooks/pre-commit",
        commands=(f"{_program('.git/hooks/pre-commit')}; {FSM} >> .git/config",),
    ),
    "the repository beside the workspace, of a working tree of the user's": Try(
        before="git init -q -b main ../main; git -C ../main commit -q --allow-empty -m a; git -C ../main worktree add -q -f $PWD -b x",
        commands=(
            f"m=../main/.git; w=$m/worktrees/work; {_program('$m/hooks/pre-commit')}; {FSM} >> $m/config; {FSM} > $w/config.worktree; "
            f"mkdir -p c/objects c/refs $w/hooks; {FSM} > c/config; echo $PWD/c > $w/commondir; {_program('$w/hooks/pre-commit')}; "
            "echo planted > ../main/file; rm -f $w/gitdir; echo $H/.bashrc > $w/gitdir",
        ),
        outside="git status; git commit -q --allow-empty -m b; cd ../main; git status; git commit -q --allow-empty -m c; git worktree prune; if [ -e file ]; then touch $RAN; fi",
    ),
    "a list of a rebase in the repository beside the workspace": Try(
        before="git init -q -b main ../main; git -C ../main commit -q --allow-empty -m a; git -C ../main worktree add -q -f $PWD -b x",
        commands=(
            "r=../main/.git/worktrees/$(basename $PWD)/rebase-merge; mkdir $r; echo refs/heads/x > $r/head-name; git rev-parse HEAD | tee $r/onto > $r/orig-head; "
            ': > $r/interactive; echo "exec touch $RAN" > $r/git-rebase-todo',
        ),
        outside="GIT_EDITOR=true git rebase --continue",
    ),
    "links in the repository beside the workspace": Try(
        before="git init -q -b main ../main; git -C ../main commit -q --allow-empty -m a; git -C ../main worktree add -q -f $PWD -b x",
        commands=('w=../main/.git/worktrees/work; echo "touch $RAN" > $w/MERGE_MSG; ln -sf $H/.bashrc $w/COMMIT_EDITMSG; ln -sf $H/new $w/FETCH_HEAD',),
        outside="GIT_EDITOR=true git commit -q --allow-empty; git fetch -q . x; sh $H/.bashrc",
    ),
    "the repository around the workspace, of a submodule of the user's": Try(
        before="git init -q ../super; mkdir -p ../super/.git/modules; git init -q --separate-git-dir ../super/.git/modules/work .; git commit -q --allow-empty -m a",
        commands=(
            f"m=../super/.git/modules/work; {_program('$m/hooks/pre-commit')}; {FSM} >> $m/config; {_program('../super/.git/hooks/pre-commit')}; "
            f"{FSM} >> ../super/.git/config; mkdir c; cp -r $m/. c; {FSM} >> c/config; echo gitdir: c > .git; mv .git x; ln -s c .git",
        ),
        outside="git status; git commit -q --allow-empty -m b; cd ../super; git status; git commit -q --allow-empty -m c",
    ),
    # ---- What an archive or the user brought before: files under two names
    "a file of settings below that an archive brought under two names": Try(
        before="mkdir -p sub/.vscode; echo '{}' > data.json; ln data.json sub/.vscode/tasks.json",
        commands=("echo planted > data.json",),
        outside=_acts("sub/.vscode/tasks.json") + "; rm -f sub/.vscode/*.from-sandbox",
    ),
    "a hook that the user keeps under two names": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\n' > tools/hook; chmod +x tools/hook; ln tools/hook .git/hooks/pre-commit",
        commands=(_program("tools/hook"),),
    ),
    "a hook that is a link of the user's": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\n' > tools/hook; chmod +x tools/hook; ln -s ../../tools/hook .git/hooks/pre-commit",
        commands=(f"mv tools old; mkdir tools; {_program('tools/hook')}",),
    ),
    "settings of git that include a link of the user's": Try(
        before=f"{REPO}; mkdir conf; : > conf/git; ln -s conf/git gitcfg; {_git('include.path ../gitcfg')}",
        commands=(f"{FSM} > conf/git",),
    ),
    "an empty folder of settings that is a link of the user's": Try(
        before="mkdir -p tools/claude; ln -s tools/claude .claude",
        commands=("echo planted > tools/claude/settings.json; mkdir tools/claude/hooks; echo planted > tools/claude/hooks/x",),
        outside=_acts(".claude/settings.json", ".claude/hooks/x"),
    ),
    "instructions of agents that are links of the user's": Try(
        before="mkdir docs env; echo hello > docs/agents.md; echo : > env/rc; ln -s docs/agents.md CLAUDE.md; ln -s env/rc .envrc",
        commands=("echo planted > docs/agents.md; echo planted > env/rc",),
        outside=_acts("CLAUDE.md", ".envrc"),
    ),
    "a link of the user's below that leads to what is no setting": Try(
        before="mkdir -p sub conf; echo '{}' > conf/mcp; ln -s ../conf/mcp sub/.mcp.json",
        commands=("echo planted > conf/mcp",),
        outside=_acts("sub/.mcp.json"),
    ),
    # ---- Programs that the user's settings of git name
    "a program with words before it that settings of git name": Try(
        before=f"{REPO}; mkdir tools; echo > tools/conv.py; {_git('diff.x.textconv %spython3 tools/conv.py%s')}; ".replace("%s", '"')
        + "echo '*.bin diff=x' > .gitattributes; echo a > a.bin; git add .; git commit -q -m b",
        commands=('mv tools old; mkdir tools; echo "open(\'$RAN\', \'w\')" > tools/conv.py',
                  'echo "open(\'$RAN\', \'w\')" > tools/conv.py'),
        outside="echo b > a.bin; git diff; git log -p",
    ),
    "a program behind a change of folder that settings of git name": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\n' > tools/fsm; chmod +x tools/fsm; git config core.fsmonitor 'cd tools && ./fsm'",
        commands=(_program("tools/fsm"), f"rm -f tools/fsm; {_program('tools/fsm')}"),
    ),
    "a program behind a question to git that settings of git name": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\ncat\\n' > tools/clean; chmod +x tools/clean; "
        "git config filter.x.clean '$(git rev-parse --show-toplevel)/tools/clean %f'; echo '*.txt filter=x' > .gitattributes",
        commands=(f"{_program('tools/clean')}; rm -f tools/clean; {_program('tools/clean')}",),
        outside="echo a > a.txt; git add a.txt",
    ),
    "a program of a variable that settings of git name": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\n' > tools/fsm; chmod +x tools/fsm; git config core.fsmonitor '${{PWD}}/tools/fsm'",
        commands=(f"{_program('tools/fsm')}; rm -f tools/fsm; {_program('tools/fsm')}",),
    ),
    "an alias with a function of the shell": Try(
        before=f"{REPO}; mkdir tools; printf '#!/bin/sh\\n' > tools/st; chmod +x tools/st; git config alias.st '!f() {{ ./tools/st \"$@\"; }}; f'",
        commands=(f"{_program('tools/st')}; rm -f tools/st; {_program('tools/st')}",),
        outside="git st",
    ),
    "settings of ssh that settings of git name": Try(
        before=f"{REPO}; mkdir tools; : > tools/ssh; git config core.sshCommand 'ssh -F tools/ssh'",
        commands=("echo 'ProxyCommand planted' > tools/ssh",),
        outside=_acts("tools/ssh"),
    ),
    "settings of ssh that an option with its value in one word names": Try(
        before=f"{REPO}; mkdir tools; : > tools/ssh; git config core.sshCommand 'ssh -Ftools/ssh -oUserKnownHostsFile=tools/hosts'",
        commands=("echo 'ProxyCommand planted' > tools/ssh",),
        outside=_acts("tools/ssh"),
    ),
    "a missing program in a missing folder that settings of git name": Try(
        before=f"{REPO}; {_git('core.fsmonitor my/tools/fsm')}",
        commands=(f"mkdir -p my/tools; {_program('my/tools/fsm')}",),
    ),
    "hooks that the user's own settings name in every repository": Try(
        before=SAVE + REPO + r"; printf '[core]\n\thooksPath = githooks\n' >> $H/.gitconfig",
        commands=(f"mkdir githooks; {_program('githooks/pre-commit')}",),
        outside="git commit -q --allow-empty -m x" + BACK,
    ),
    "settings of git in the workspace that the user's own include": Try(
        before=SAVE + REPO + r'; mkdir conf; : > conf/git; printf "[include]\n\tpath = $PWD/conf/git\n" >> $H/.gitconfig',
        commands=(f"{FSM} > conf/git",),
        outside="git status" + BACK,
    ),
    "a template of repositories in the workspace that the user's own settings name": Try(
        before=SAVE + r'mkdir tpl; printf "[init]\n\ttemplateDir = $PWD/tpl\n" >> $H/.gitconfig',
        commands=(f"mkdir -p tpl/hooks; {_program('tpl/hooks/pre-commit')}",),
        outside="git init -q ../fresh; git -C ../fresh commit -q --allow-empty -m x" + BACK,
    ),
    "a file of the workspace to which the user's shell has a link": Try(
        before="echo : > zshrc; ln -s $PWD/zshrc $H/.zshrc",
        commands=('echo "touch $RAN" > zshrc',),
        outside="sh $H/.zshrc; rm $H/.zshrc",
    ),
    # ---- Names and places
    "a repository at a depth that no path reaches": Try(
        commands=(
            f"git init -q sub; {FSM} > cfg; d=$(printf %0200d 0); w=$PWD; mkdir -p x; cd x; i=0; while [ $i -lt 25 ]; do i=$((i+1)); mkdir $d; cd $d; done; "
            "mkdir -p sub/.git/objects sub/.git/refs; echo ref: refs/heads/main > sub/.git/HEAD; "
            r'printf "[core]\n\tfsmonitor = touch $RAN\n" > sub/.git/config',
        ),
        outside="w=$PWD; cd x; while cd 0* 2> /dev/null; do :; done; mv sub $w/up",
    ),
    "settings beside a name that is too long to be set aside": Try(
        commands=(
            "n=.$(printf %0254d 0); mkdir -p a/.vscode z/.vscode .vscode; : > $n; : > a/$n; : > z/$n; : > .vscode/$n; "
            "for f in a/.vscode/tasks.json z/.vscode/tasks.json .vscode/tasks.json a/.envrc z/.envrc .envrc; do echo planted > $f; done",
        ),
    ),
    "settings whose other name is taken": Try(
        commands=(
            "for d in . sub; do mkdir -p $d/.vscode.from-sandbox/x $d/.vscode; ln -s $H $d/.envrc.from-sandbox; ln -s $H/new $d/.mcp.json.from-sandbox; "
            "for n in 1 2 3; do ln -s $H/.bashrc $d/.envrc.from-sandbox-$n; ln -s $H/.bashrc $d/.envrc.from-sandbox.$n; done; "
            "echo planted > $d/.vscode/tasks.json; echo planted > $d/.envrc; echo planted > $d/.mcp.json; done",
        ),
    ),
    "settings in a folder that looks like one that was set aside": Try(
        commands=("mkdir -p x.from-sandbox/.vscode; echo planted > x.from-sandbox/.vscode/tasks.json", "mv x.from-sandbox x"),
    ),
    "settings in what was set aside, put back": Try(
        commands=("mkdir -p sub/.vscode; echo planted > sub/.vscode/tasks.json", "mv sub/.vscode.from-sandbox sub/.vscode"),
    ),
    "a repository in a folder that looks like one that was set aside": Try(
        commands=(f"git init -q x.from-sandbox; {FSM} >> x.from-sandbox/.git/config",),
        outside="cd x.from-sandbox && git status",
    ),
    "a repository in a folder that looks like one that was set aside, moved": Try(
        commands=(f"git init -q x.from-sandbox; {FSM} >> x.from-sandbox/.git/config", "mv x.from-sandbox x"),
    ),
    "a folder of results that gets another name and its old one again": Try(
        commands=("mkdir -p dist/.claude; echo planted > dist/.claude/settings.json", "mv dist a; sleep .1; mkdir dist", "mkdir -p b; mv a b/c"),
    ),
    "a link to a project among results": Try(
        commands=("mkdir -p build/p; echo planted > build/p/.envrc; ln -s build/p p",), outside=_acts("p/.envrc")
    ),
    "so many settings that some are forgotten": Try(
        commands=(
            "mkdir a; cd a; i=0; while [ $i -lt 1500 ]; do i=$((i+1)); : > .$i; done; cd ..; mkdir -p a/.vscode z/.vscode; echo planted > a/.vscode/tasks.json; "
            "echo planted > z/.vscode/tasks.json; echo planted > a/.zz; echo planted > .envrc",
        ),
        outside=_acts("a/.zz"),
    ),
    "a folder of settings that is written without end": Try(
        commands=(
            "(i=0; while [ $i -lt 300 ]; do i=$((i+1)); mkdir -p sub/.vscode; echo planted > sub/.vscode/tasks.json; done) & sleep .2",
        ),
        outside="sleep .5",
    ),
    "a folder of settings that can't be entered": Try(
        commands=("mkdir -p sub/.vscode; echo planted > sub/.vscode/tasks.json; chmod 0 sub/.vscode",),
        outside="chmod 755 sub/.vscode",
    ),
    "a folder of settings at the top that can't be entered": Try(
        commands=("mkdir .vscode; echo planted > .vscode/tasks.json; chmod 600 .vscode", "true"),
        outside="chmod 755 .vscode",
    ),
    "hooks that can't be entered": Try(
        commands=(f"git init -q sub; {_program('sub/.git/hooks/pre-commit')}; chmod 0 sub/.git/hooks", "true"),
        outside="chmod 755 sub/.git/hooks",
    ),
    "a folder that can't be entered, opened by the next command and closed again": Try(
        commands=(
            f"mkdir -p sub/p/.vscode; echo planted > sub/p/.vscode/tasks.json; git init -q sub/r; {FSM} >> sub/r/.git/config; chmod 0 sub",
            "chmod 755 sub; mv sub/p p; mv sub/r r; chmod 0 p r",
        ),
        outside="chmod 755 p r",
    ),
    "settings in a git folder that then get another place": Try(
        before=REPO,
        commands=("mkdir -p .git/p/.vscode; echo planted > .git/p/.vscode/tasks.json; echo planted > .git/p/.envrc", "mv .git/p p"),
    ),
    "a second name for a file among results": Try(
        commands=("mkdir -p build sub; echo planted > build/.envrc; echo planted > build/x", "ln build/.envrc sub/.envrc; ln build/x sub/CLAUDE.md; ln build/x .envrc"),
    ),
    "settings of the user below, written through another name": Try(
        before="mkdir -p sub/.vscode; echo '{}' > sub/.vscode/tasks.json",
        commands=("ln sub/.vscode/tasks.json x && echo planted > x; touch -d 2001-01-01 x; rm x",),
        outside=_acts("sub/.vscode/tasks.json") + "; rm -f sub/.vscode/*.from-sandbox",
    ),
    "git settings of a box's own": Try(
        commands=('git config --global core.fsmonitor planted; echo "# planted" >> "$GIT_CONFIG_GLOBAL"; echo planted > ~/.gitconfig; mv "$GIT_CONFIG_GLOBAL" x',),
        outside="if grep -rqs planted ../../satchel; then touch $RAN; fi",
    ),
    # ---- What programs act upon that has no dot, or a harmless one
    "hooks of an agent among files for a service": Try(
        # Copilot's command line loads .github/hooks/*.json from the working directory, and runs them.
        commands=("mkdir -p .github/hooks; echo '{\"version\":1,\"hooks\":{\"sessionStart\":[{\"type\":\"command\",\"bash\":\"planted\"}]}}' > .github/hooks/x.json",),
        outside=_acts(".github/hooks/x.json"),
    ),
    "servers of an agent among files for another service": Try(
        # GitLab Duo reads .gitlab/duo/mcp.json of the workspace, whose servers are programs.
        commands=("mkdir -p .gitlab/duo; echo '{\"mcpServers\":{\"x\":{\"type\":\"stdio\",\"command\":\"planted\"}}}' > .gitlab/duo/mcp.json",),
        outside=_acts(".gitlab/duo/mcp.json"),
    ),
    "options of ctags, among them where it writes": Try(
        # ctags, which editors start, reads these by itself.
        commands=("mkdir .ctags.d; echo '-f /planted' > .ctags.d/x.ctags",),
        outside=_acts(".ctags.d/x.ctags"),
    ),
    "instructions of an agent among files for a service": Try(
        commands=("mkdir -p .github/instructions; echo planted > .github/copilot-instructions.md; echo planted > .github/instructions/x.instructions.md",),
        outside=_acts(".github/copilot-instructions.md", ".github/instructions/x.instructions.md"),
    ),
    "a version of Python that is a program": Try(
        # uv starts it, also for `uv python find`.
        commands=(f"mkdir tools; {_program('tools/python')}; echo ./tools/python > .python-version; echo path:$PWD/tools > .node-version",),
        outside="p=$(head -n 1 .python-version 2> /dev/null); case $p in */*) $p;; esac",
    ),
    "a tool chain of Rust in the workspace": Try(
        # rustup's cargo, rustc and rust-analyzer are then programs of this folder, also when a prompt asks for a version.
        commands=(f'mkdir -p tc/bin; {_program("tc/bin/rustc")}; printf "[toolchain]\\npath = \\"$PWD/tc\\"\\n" > rust-toolchain.toml',),
        outside="p=$(sed -n 's/^path = \"\\(.*\\)\"/\\1/p' rust-toolchain.toml) && [ -n \"$p\" ] && $p/bin/rustc --version",
    ),
    "instructions of more agents": Try(
        commands=("for f in AGENT.md QWEN.md CRUSH.md WARP.md; do echo planted > $f; done",),
        outside=_acts("AGENT.md", "QWEN.md", "CRUSH.md", "WARP.md"),
    ),
    "settings of a changer of environments, in its folder": Try(
        commands=("mkdir -p mise/conf.d; echo planted > mise/config.toml; echo planted > mise/conf.d/x.toml; echo planted > mise.dev.local.toml",),
        outside=_acts("mise/config.toml", "mise/conf.d/x.toml", "mise.dev.local.toml"),
    ),
    "settings of a runner of hooks, in every form": Try(
        before=REPO,
        commands=("for e in yml yaml toml json jsonc; do echo planted > lefthook.$e; echo planted > lefthook-local.$e; done; mkdir -p .config; echo planted > .config/lefthook.yml",),
        outside=_acts("lefthook.*[!x]", "lefthook-local.*[!x]", ".config/lefthook.yml"),
    ),
    "settings of more runners of hooks": Try(
        before=REPO,
        commands=("echo planted > prek.toml; echo planted > hk.pkl; echo planted > captainhook.json; echo planted > grumphp.yml",),
        outside=_acts("prek.toml", "hk.pkl", "captainhook.json", "grumphp.yml"),
    ),
    "settings of another version control, without a dot": Try(
        commands=("mkdir -p _darcs/prefs sub; echo 'apply posthook planted' > _darcs/prefs/defaults; echo planted > sub/_FOSSIL_",),
        outside=_acts("_darcs/prefs/defaults", "sub/_FOSSIL_"),
    ),
    "settings of other version controls, with a dot": Try(
        commands=("for n in .hg .jj/repo .svn .bzr .sl .pijul; do mkdir -p sub/$n $n; echo planted > sub/$n/hgrc; echo planted > $n/hgrc; done",),
        outside=_acts("sub/.hg/hgrc", "sub/.jj/repo/hgrc", "sub/.svn/hgrc", "sub/.bzr/hgrc", "sub/.sl/hgrc", ".hg/hgrc", ".jj/repo/hgrc"),
    ),
    "start-up files of shells of languages": Try(
        commands=("mkdir sub; for f in irb.rc _irbrc .irbrc .pryrc .Rprofile .ghci .gdbinit .lldbinit .pdbrc .sqliterc; do echo planted > sub/$f; done",),
        outside=_acts("sub/irb.rc", "sub/_irbrc", "sub/.irbrc", "sub/.pryrc", "sub/.Rprofile", "sub/.ghci", "sub/.gdbinit", "sub/.pdbrc"),
    ),
    "start-up files of vim": Try(
        commands=('mkdir sub; for f in .vimrc .exrc _vimrc _exrc .gvimrc; do echo "silent !touch $RAN" > sub/$f; done',),
        outside="cd sub && TERM=dumb VIMINIT='set exrc' timeout 5 vim -i NONE -c 'qa!' < /dev/null",
    ),
    "settings of linters that editors load": Try(
        commands=("mkdir sub; for f in .pylintrc .flake8 .rubocop.yml .prettierrc .stylelintrc .eslintrc.js .luarc.json .solargraph.yml .clangd; do echo planted > sub/$f; done",),
        outside=_acts("sub/.pylintrc", "sub/.flake8", "sub/.rubocop.yml", "sub/.prettierrc", "sub/.stylelintrc", "sub/.eslintrc.js", "sub/.luarc.json", "sub/.clangd"),
    ),
    "a branch whose name is a command, in a prompt": Try(
        before=REPO,
        commands=('git checkout -q -b "a\\$(touch\\${IFS}$RAN)\\`touch\\${IFS}$RAN\\`"',),
        outside="bash --norc -c '. /usr/lib/git-core/git-sh-prompt; PS1=\"\\$(__git_ps1)\"; echo \"${PS1@P}\"; __git_ps1 a b; echo \"${PS1@P}\"'",
    ),
    # ---- What rules let commands write
    "hooks where a rule lets commands write the folder around the workspace": Try(
        write=("..",), before=REPO, commands=(f"{_program('.git/hooks/pre-commit')}; {_program('../$(basename $PWD)/.git/hooks/pre-commit')}; {FSM} >> ../$(basename $PWD)/.git/config",)
    ),
    "hooks where a rule lets commands write the workspace": Try(
        write=(".",), before=REPO, commands=(f"{_program('.git/hooks/pre-commit')}; {FSM} >> .git/config",)
    ),
    "a repository of the user's where a rule lets commands write": Try(
        write=("sub",), before="git init -q sub", commands=(f"{_program('sub/.git/hooks/pre-commit')}; {FSM} >> sub/.git/config; mv sub/.git sub/x",)
    ),
    "settings of the user's in a folder that a rule lets commands write, by a link there": Try(
        write=("sub",), before="mkdir sub .vscode; echo '{}' > .vscode/tasks.json; ln -s ../.vscode sub/link; ln -s $H sub/home",
        commands=("echo planted > sub/link/tasks.json; echo planted > sub/home/new",),
        outside=_acts(".vscode/tasks.json") + "; rm -f .vscode/*.from-sandbox",
    ),
    "a file that a rule lets commands write, replaced by a link": Try(
        write=("~/notes/todo",), commands=("rm -f $H/notes/todo; ln -s $H/.bashrc $H/notes/todo", "echo planted > $H/notes/todo"),
    ),
}  # fmt: skip
"""By what is tried."""
