"""What the user agreed to for good, where several machines share it: `SATCHEL_HOME/agreed.json`.

It is each machine's copy of what is on the server (`satchel.runtime.agreed`). Settings are read with it, and it holds
while the server is away.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from satchel.config.check import check_rules
from satchel.config.home import replace_file
from satchel.config.setting import written
from satchel.config.settings import PermissionRule
from satchel.errors import ConfigError

_FILE: Final = "agreed.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """One state of it.

    Attributes:
        number: Grows with each change; 0 if nothing was ever agreed to.
        rules: Permission rules, in the order in which they came.
        tools: The keys of tools, each of which stands for the content or the description that was approved.
    """

    number: int = 0
    rules: tuple[PermissionRule, ...] = ()
    tools: frozenset[str] = frozenset()

    @property
    def text(self) -> str:
        """As it is stored."""
        rules = [{"action": rule.action, "tool": rule.tool, **written(rule.options)} for rule in self.rules]
        return json.dumps({"number": self.number, "permissions": rules, "tools": sorted(self.tools)})

    @classmethod
    def of_text(cls, text: str, where: str) -> Agreement:
        """Read what was stored.

        Raises:
            ConfigError: It is damaged, or a later version wrote it.
        """
        try:
            value = json.loads(text)
            return cls(
                number=int(value["number"]),
                rules=check_rules(value["permissions"], lambda _: where),
                tools=frozenset(map(str, value["tools"])),
            )
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ConfigError(f"{where} is damaged ({type(error).__name__}). Fix or delete it.") from error


def read_agreement(home: Path) -> Agreement:
    """What this machine knows of it.

    Raises:
        ConfigError: The file is damaged.
    """
    path = home / _FILE
    try:
        return Agreement.of_text(path.read_text(encoding="utf-8"), str(path))
    except (FileNotFoundError, NotADirectoryError):
        return Agreement()
    except OSError as error:
        raise ConfigError(f"{path} can't be read: {error}.") from error


def write_agreement(home: Path, agreement: Agreement) -> None:
    """Let this machine know it.

    Raises:
        StorageUnwritable: The file can't be written; it is unchanged.
    """
    replace_file(home / _FILE, agreement.text)
