"""Every error that Satchel raises on purpose; the class says who must act.

SatchelError
├── UserError                  the person at the keyboard mends it
│   ├── ConfigError            a setting, its file or its value            (exit 2)
│   ├── UsageError             an argument or an input of the wrong form   (exit 2)
│   └── NotFound               a name or an id that does not exist         (exit 3)
├── Refused                    a permission rule or the sandbox said no    (exit 4)
├── ModelError                 a language model did not serve
│   ├── ModelAuthError         the key is missing, wrong or out of credit: the user mends it, no retry
│   ├── ModelRejected          the request itself was refused: no retry
│   │   ├── ContextOverflow    the request is longer than the model's window: compact and retry
│   │   └── ToolsUnsupported   the endpoint or the model takes no tool definitions: use the JSON layer
│   └── ModelUnavailable       it is down, overloaded or cut the line: retry with backoff
├── BudgetExceeded             a hard limit in tokens or money was reached
├── EmbedderError              the embedding model did not serve; the lexical arm goes on
│   └── EmbedderMismatch       it is not the model that the store's vectors were made with
├── StorageError               the database or a file did not serve
│   ├── StorageLocked          another process holds it too long
│   ├── StorageCorrupt         it cannot be read
│   ├── StorageTooNew          a newer Satchel wrote it: upgrade, never touch
│   └── StorageUnwritable      the disk is full or the place is read-only
└── SandboxError               the sandbox itself failed (a guest's failure is a result, not an error)
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "ConfigError",
    "ContextOverflow",
    "EmbedderError",
    "EmbedderMismatch",
    "ModelAuthError",
    "ModelError",
    "ModelRejected",
    "ModelUnavailable",
    "NotFound",
    "Refused",
    "SandboxError",
    "SatchelError",
    "StorageCorrupt",
    "StorageError",
    "StorageLocked",
    "StorageTooNew",
    "StorageUnwritable",
    "ToolsUnsupported",
    "UsageError",
    "UserError",
]


class SatchelError(Exception):
    """Root of the tree. The message says what happened, to what, and what to do about it.

    Attributes:
        exit_code: What a command exits with when this error ends it (DESIGN 3.3).
    """

    exit_code: int = 1


class UserError(SatchelError):
    """The person at the keyboard mends it."""

    exit_code = 2


class ConfigError(UserError):
    """A setting is unknown or has a value that is not allowed; names file, line and key."""


class UsageError(UserError):
    """An argument or an input has the wrong form."""


class NotFound(UserError):
    """A name or an id does not exist."""

    exit_code = 3


class Refused(SatchelError):
    """A permission rule or the sandbox said no; the message names the rule that would allow it."""

    exit_code = 4


class ModelError(SatchelError):
    """A language model did not serve."""


class ModelAuthError(ModelError):
    """The key is missing, wrong or out of credit. The user mends it; never retried."""


class ModelRejected(ModelError):
    """The endpoint refused the request itself. Never retried unchanged."""


class ContextOverflow(ModelRejected):
    """The request is longer than the model's window. Compact, then retry."""


class ToolsUnsupported(ModelRejected):
    """The endpoint or the model takes no tool definitions. The JSON layer serves instead."""


class ModelUnavailable(ModelError):
    """The endpoint is down, overloaded, too slow, or cut the connection. Retried with backoff.

    Attributes:
        retry_after_s: What the endpoint asked for, in seconds, or None.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        """Keep the message and what the endpoint asked us to wait."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BudgetExceeded(SatchelError):
    """A hard limit in tokens or money was reached; nothing more is asked of a model."""


class EmbedderError(SatchelError):
    """The embedding model did not serve. Search goes on with the lexical arm."""


class EmbedderMismatch(EmbedderError):
    """The embedder in use is not the one that the store's vectors were made with."""


class StorageError(SatchelError):
    """The database or a file did not serve."""


class StorageLocked(StorageError):
    """Another process held the database longer than we wait."""


class StorageCorrupt(StorageError):
    """The database or the log cannot be read."""


class StorageTooNew(StorageError):
    """A newer Satchel wrote the database. Upgrade the program; the file was not touched."""


class StorageUnwritable(StorageError):
    """The disk is full, or the place is read-only."""


class SandboxError(SatchelError):
    """The sandbox itself failed."""
