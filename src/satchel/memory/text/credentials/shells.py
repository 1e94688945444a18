"""Passwords on command lines: `curl -u ann:…`, `sshpass -p …`, `mysql -p…`, `… --password …`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from satchel.memory.text.credentials.secret import SAID_OF_IT, Secret, is_placeholder, is_random, kind_of
from satchel.memory.text.credentials.settings import NAMES, is_counted

# An argument as a shell reads it; one of the three holds it.
_ARGUMENT: Final = r"(?:'([^'\n]{2,300})'|\"([^\"\n]{2,300})\"|([^\s'\"|;&<>]{2,300}))"
_REST: Final = r"[^|;&\n]{0,300}?\s"
"""What stands between a program and its option: no end of the command."""

_LOGS_IN: Final = (
    r"(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|az|oc|cf|vault|npm|heroku|crane)"
    r"\b[^|;&\n]{0,80}?\blogin\b"
)
_WITH_ACCOUNT: Final = (
    (r"(?:curl|wget|aria2c)", r"(?:-[A-Za-z]*[uU]\s*|--(?:proxy-)?user[ =]\s*)"),
    (r"(?:https?|xh)", r"(?:-a\s*|--auth[ =]\s*)"),
    (r"(?:smbclient|rpcclient|mount\.cifs|net)", r"(?:-U\s*|--user[ =]\s*)"),
)
"""Programs whose option takes NAME:VALUE or NAME%VALUE, of which the value is replaced."""
_ACCOUNT: Final = re.compile(r"[^\s:%]*[:%](.+)", re.DOTALL)
_WITH_PASSWORD: Final = (
    (r"sshpass", r"-p\s*"),
    (r"(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump)", r"-p(?=[^\s])"),
    (_LOGS_IN, r"(?:-p|--password)[ =]\s*"),
    (r"redis-cli", r"(?:-a|--pass)\s+"),
    (r"(?:mongo(?:sh|dump|restore|export|import)?|ncftp(?:put|get|ls)?|twine)", r"-p\s+"),
    (r"ldap(?:search|modify|add|delete|passwd|whoami)", r"-w\s*"),
    (r"(?:7z|7za|7zz|rar|unrar)", r"-h?p(?=[^\s])"),
    (r"(?:zip|unzip)(?=[^\n]*\.\w)", r"-P\s+"),
    (r"(?:sqlcmd|bcp|isql|tsql|sqlplus|impacket-\w+|mosquitto_(?:pub|sub|rr))", r"-P\s+"),
    (r"openssl", r"(?:-(?:pass|passin|passout)\s+pass:|-k\s+)"),
    (r"net(?:\.exe)?\s+use", r"/user:\S+\s+(?!/)"),
    (r"lftp", r"-u\s+[^\s,]{1,100},"),
    (r"(?:snmpwalk|snmpget)", r"-[AX]\s+"),
)
_FORMS: Final = (
    *(rf"(?<![\w./-]){program}(?=\s){_REST}{option}{_ARGUMENT}" for program, option in _WITH_PASSWORD),
    rf"(?<![\w./-])htpasswd\s+-[A-Za-z]*b[A-Za-z]*\s+(?:\S+\s+){{1,2}}?(?=\S+\s*(?:$|[|;&\n])){_ARGUMENT}",
    rf"(?i:\b(?:setx|set(?:\s+-[A-Za-z]*[xU][A-Za-z]*)+)\s+\w*(?:PASS|PWD|SECRET|TOKEN|KEY)\w*\s+{_ARGUMENT}"
    rf"|\bConvertTo-SecureString\s+(?:-String\s+)?{_ARGUMENT})",
    # echo marmalade | sudo -S, echo ann:marmalade | chpasswd
    rf"\b(?:echo|printf)\s+(?:-\w+\s+)?{_ARGUMENT}\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-S|(?:sudo\s+)?chpasswd|kinit"
    r"|su\b|docker\s+login|gpg\b[^\n]{0,60}--passphrase-fd|passwd\b|cryptsetup\b)",
)
_COMMAND: Final = re.compile(r"\s-\S|\||setx |/user:|SecureString", re.IGNORECASE)
"""What nearly no text that is not a command has."""
_OPTION: Final = re.compile(
    rf"(?<!\S)--?(?:[a-z0-9]{{1,30}}-){{0,4}}(?:{NAMES}|pass)[ =]{_ARGUMENT}", re.IGNORECASE
)


def find_in_commands(text: str) -> Iterator[Secret]:
    """The passwords that are arguments in the commands of a text."""
    if not _COMMAND.search(text):
        return
    for program, option in _WITH_ACCOUNT:
        for match in re.finditer(rf"(?<![\w./-]){program}(?=\s){_REST}{option}{_ARGUMENT}", text):
            group = match.lastindex or 0
            account = _ACCOUNT.fullmatch(match[group])
            if account is not None and not _stands_for_one(account[1]) and not match[group].isdigit():
                yield Secret(
                    kind="password", start=match.start(group) + account.start(1), end=match.end(group)
                )
    for form in _FORMS:
        for match in re.finditer(form, text):
            group = match.lastindex or 0
            if not _stands_for_one(match[group]):
                yield Secret(kind="password", start=match.start(group), end=match.end(group))
    for match in _OPTION.finditer(text):
        group = match.lastindex or 0
        value = match[group]
        if is_counted(match[0]) or value.startswith("-") or len(value) < 4 or is_placeholder(value):
            continue
        is_password = kind_of(match[0]) == "password" and "-file" not in match[0]
        if is_random(value) or (is_password and not SAID_OF_IT.fullmatch(value.rstrip(".,;:"))):
            yield Secret(kind=kind_of(match[0]), start=match.start(group), end=match.end(group))


def _stands_for_one(value: str) -> bool:
    """Whether an argument names a secret instead of being it: a variable, or a command that reads one."""
    return value[0] in "$<[{`(" or value.startswith("/") or value in ("-", "stdin", "password", "PASSWORD")
