"""Passwords on command lines: `curl -u ann:…`, `sshpass -p …`, `mysql -p…`, `… --password …`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

from satchel.memory.text.credentials.secret import SAID_OF_IT, Secret, is_placeholder, is_random
from satchel.memory.text.credentials.settings import NAMES, is_counted
from satchel.memory.text.credentials.spoken import kind_of

__all__ = ["find_in_commands"]

# An argument as a shell reads it; one of the three holds it.
_ARGUMENT: Final = r"(?:'([^'\n]{2,300})'|\"([^\"\n]{2,300})\"|([^\s'\"|;&<>]{2,300}))"
_REST: Final = r"[^|;&\n]{0,300}?\s"
"""What stands between a program and its option: no end of the command."""

# NAME:VALUE, of which the value is replaced. Each with what a text must have for it to be worth searching.
_ACCOUNTS: Final[tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]] = tuple(
    (hints, re.compile(rf"(?<![\w./-]){program}(?=\s)(?:{_REST}|\s){option}{_ARGUMENT}"))
    for hints, program, option in (
        (
            ("curl", "wget", "aria2c"),
            r"(?:curl|wget|aria2c)",
            r"(?:-[A-Za-z]*[uU]\s*|--(?:proxy-)?user[ =]\s*)",
        ),
        (("http", "xh"), r"(?:https?|xh)", r"(?:-a\s*|--auth[ =]\s*)"),
        (("client", "cifs", "net"), r"(?:smbclient|rpcclient|mount\.cifs|net)", r"(?:-U\s*|--user[ =]\s*)"),
    )
)
_ACCOUNT: Final = re.compile(r"[^\s:%]*[:%](.+)", re.DOTALL)

_LOGS_IN: Final = (
    r"(?:docker|podman|nerdctl|buildah|skopeo|helm|oras|az|oc|cf|vault|npm|heroku|crane)"
    r"\b[^|;&\n]{0,80}?\blogin\b"
)
_COMMANDS: Final = tuple(
    (hints, re.compile(rf"(?<![\w./-]){program}(?:{_REST}|(?=\s)\s){option}{_ARGUMENT}"))
    for hints, program, option in (
        (("sshpass",), r"sshpass(?=\s)", r"-p\s*"),
        (
            ("mysql", "mariadb"),
            r"(?:mysql|mysqldump|mysqladmin|mysqlimport|mariadb|mariadb-dump)(?=\s)",
            r"-p(?=[^\s])",
        ),
        (("login",), _LOGS_IN, r"(?:-p|--password)[ =]\s*"),
        (("redis-cli",), r"redis-cli(?=\s)", r"(?:-a|--pass)\s+"),
        (("mongo",), r"mongo(?:sh|dump|restore|export|import)?(?=\s)", r"-p\s+"),
        (("ldap",), r"ldap(?:search|modify|add|delete|passwd|whoami)(?=\s)", r"-w\s*"),
        (("7z", "rar"), r"(?:7z|7za|7zz|rar|unrar)(?=\s)", r"-h?p(?=[^\s])"),
        (("zip",), r"(?:zip|unzip)(?=\s)(?=[^\n]*\.\w)", r"-P\s+"),
        (
            ("sql", "bcp", "impacket-"),
            r"(?:sqlcmd|bcp|isql|tsql|sqlplus|impacket-\w+)(?=\s)",
            r"-P\s+",
        ),
        (("openssl",), r"openssl(?=\s)", r"(?:-(?:pass|passin|passout)\s+pass:|-k\s+)"),
        (("net use",), r"net(?:\.exe)?\s+use(?=\s)", r"/user:\S+\s+(?!/)"),
        (("mosquitto",), r"mosquitto_(?:pub|sub|rr)(?=\s)", r"-P\s+"),
        (("ncftp",), r"ncftp(?:put|get|ls)?(?=\s)", r"-p\s+"),
        (("lftp",), r"lftp(?=\s)", r"-u\s+[^\s,]{1,100},"),
        (("twine",), r"twine(?=\s)", r"-p\s+"),
        (("snmp",), r"(?:snmpwalk|snmpget)(?=\s)", r"-[AX]\s+"),
    )
)
_PASSWORDS: Final[tuple[tuple[tuple[str, ...], re.Pattern[str]], ...]] = (
    *_COMMANDS,
    (
        ("htpasswd",),
        re.compile(
            r"(?<![\w./-])htpasswd\s+-[A-Za-z]*b[A-Za-z]*\s+(?:\S+\s+){1,2}?(?=\S+\s*(?:$|[|;&\n]))"
            + _ARGUMENT
        ),
    ),
    (
        ("setx", "set -", "SecureString"),
        re.compile(
            rf"\b(?:setx|set(?:\s+-[A-Za-z]*[xU][A-Za-z]*)+)\s+\w*(?:PASS|PWD|SECRET|TOKEN|KEY)\w*\s+{_ARGUMENT}"
            rf"|\bConvertTo-SecureString\s+(?:-String\s+)?{_ARGUMENT}",
            re.IGNORECASE,
        ),
    ),
    # echo marmalade | sudo -S, echo ann:marmalade | chpasswd
    (
        ("echo", "printf"),
        re.compile(
            rf"\b(?:echo|printf)\s+(?:-\w+\s+)?{_ARGUMENT}\s*\|\s*(?:sudo\s+(?:-\w+\s+)*-S|(?:sudo\s+)?chpasswd|kinit"
            r"|su\b|docker\s+login|gpg\b[^\n]{0,60}--passphrase-fd|passwd\b|cryptsetup\b)"
        ),
    ),
)
_OPTION: Final = re.compile(
    rf"(?<!\S)--?(?:[a-z0-9]{{1,30}}-){{0,4}}(?:{NAMES}|pass)[ =]{_ARGUMENT}", re.IGNORECASE
)


def find_in_commands(text: str) -> Iterator[Secret]:
    """The passwords that are arguments in the commands of a text."""
    for hints, pattern in _ACCOUNTS:
        if not any(hint in text for hint in hints):
            continue
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            account = _ACCOUNT.fullmatch(match[group])
            if account is not None and not _stands_for_one(account[1]) and not match[group].isdigit():
                yield Secret(
                    kind="password", start=match.start(group) + account.start(1), end=match.end(group)
                )
    for hints, pattern in _PASSWORDS:
        if not any(hint in text for hint in hints):
            continue
        for match in pattern.finditer(text):
            group = match.lastindex or 0
            if not _stands_for_one(match[group]):
                yield Secret(kind="password", start=match.start(group), end=match.end(group))
    if " -" not in text:
        return
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
