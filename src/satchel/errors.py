"""All errors that Satchel raises deliberately. The class of an error says who must act.

SatchelError
├── UserError                  the user can fix it
│   ├── ConfigError            a setting, its file or its value            (exit 2)
│   ├── UsageError             an argument or an input has the wrong form  (exit 2)
│   ├── LineFull               too many messages wait for their turns      (exit 2)
│   └── NotFound               a name or an id doesn't exist               (exit 3)
├── Refused                    a permission rule or the sandbox refused it (exit 4)
├── ModelError                 a request to a language model failed
│   ├── ModelAuthError         the key is missing, wrong or out of credit: the user must act, no retry
│   ├── ModelRejected          the endpoint refused the request itself: no retry
│   │   ├── ContextOverflow    the request exceeds the model's context window: compact and retry
│   │   └── ToolsUnsupported   the endpoint or the model doesn't support tools: use the JSON layer
│   └── ModelUnavailable       the endpoint is down, overloaded or closed the connection: retry with backoff
├── BudgetExceeded             a hard limit in tokens or money was reached
├── ServerUnavailable          the server of this home doesn't answer: it was stopped, or it is starting
├── EmbedderError              the embedding model failed; lexical search still works
│   └── EmbedderMismatch       the store's vectors were made with another model
├── StorageError               the database or a file is unusable
│   ├── StorageLocked          another process has locked it for too long
│   │   └── SessionInUse       the session is open elsewhere: close it there
│   ├── StorageUnreachable     the server of the database doesn't answer: check that it runs
│   ├── StorageCorrupt         it can't be read
│   ├── StorageTooNew          a newer version of Satchel wrote it: upgrade
│   └── StorageUnwritable      the disk is full or the location is read-only
└── SandboxError               the sandbox itself failed (a failure of the program in it is a result)
    └── NoSandbox              this machine has none, or none that can do what was asked (exit 4)
"""

from __future__ import annotations

__all__ = [
    "BudgetExceeded",
    "ConfigError",
    "ContextOverflow",
    "EmbedderError",
    "EmbedderMismatch",
    "LineFull",
    "ModelAuthError",
    "ModelError",
    "ModelRejected",
    "ModelUnavailable",
    "NoSandbox",
    "NotFound",
    "Refused",
    "SandboxError",
    "SatchelError",
    "ServerUnavailable",
    "SessionInUse",
    "StorageCorrupt",
    "StorageError",
    "StorageLocked",
    "StorageTooNew",
    "StorageUnreachable",
    "StorageUnwritable",
    "ToolsUnsupported",
    "UsageError",
    "UserError",
]


class SatchelError(Exception):
    """The root of the tree. The message says what happened, to what, and what to do about it.

    Attributes:
        exit_code: The exit code of a command that this error ends (DESIGN 3.3).
    """

    exit_code: int = 1


class UserError(SatchelError):
    """The user can fix it."""

    exit_code = 2


class ConfigError(UserError):
    """A setting is unknown or its value is invalid. The message names the file, line and key."""


class UsageError(UserError):
    """An argument or an input has the wrong form."""


class LineFull(UserError):
    """Too many messages wait for their turns in a session. Send it again when one of them has begun."""


class NotFound(UserError):
    """A name or an id doesn't exist."""

    exit_code = 3


class Refused(SatchelError):
    """A permission rule or the sandbox refused it. The message names the rule that would allow it."""

    exit_code = 4


class ModelError(SatchelError):
    """A request to a language model failed."""


class ModelAuthError(ModelError):
    """The key is missing, wrong or out of credit. The user must act; never retried."""


class ModelRejected(ModelError):
    """The endpoint refused the request itself. Never retried unchanged."""


class ContextOverflow(ModelRejected):
    """The request exceeds the model's context window. Compact, then retry."""


class ToolsUnsupported(ModelRejected):
    """The endpoint or the model doesn't support tool definitions. Use the JSON layer instead."""


class ModelUnavailable(ModelError):
    """The endpoint is down, overloaded or too slow, or closed the connection. Retried with backoff.

    Attributes:
        retry_after_s: The delay that the endpoint requested, in seconds, or None.
    """

    def __init__(self, message: str, *, retry_after_s: float | None = None) -> None:
        """Store the message and the requested delay."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class BudgetExceeded(SatchelError):
    """A hard limit in tokens or money was reached. No more requests are sent to a model."""


class ServerUnavailable(SatchelError):
    """The server of this home doesn't answer. What runs there goes on, or is in its session's log."""


class EmbedderError(SatchelError):
    """The embedding model failed. Search continues with the lexical arm."""


class EmbedderMismatch(EmbedderError):
    """The store's vectors were made with another embedder than the one in use."""


class StorageError(SatchelError):
    """The database or a file is unusable."""


class StorageLocked(StorageError):
    """Another process locked the database for longer than Satchel waits."""


class SessionInUse(StorageLocked):
    """The session is open elsewhere, in this process or in the one that the message names.

    Attributes:
        served: The session's id, if a server has it open that carries out requests for it; otherwise "".
    """

    def __init__(self, message: str, *, served: str = "") -> None:
        """Store the message and the id."""
        super().__init__(message)
        self.served = served


class StorageUnreachable(StorageError):
    """The server of the database doesn't answer.

    Attributes:
        is_unsure: What was being written may have been stored.
    """

    def __init__(self, message: str, *, is_unsure: bool = False) -> None:
        """Store the message and what is known."""
        super().__init__(message)
        self.is_unsure = is_unsure


class StorageCorrupt(StorageError):
    """The database or the log can't be read."""


class StorageTooNew(StorageError):
    """A newer version of Satchel wrote the database. Upgrade the program; the file was not changed."""


class StorageUnwritable(StorageError):
    """The disk is full, or the location is read-only."""


class SandboxError(SatchelError):
    """The sandbox itself failed."""


class NoSandbox(SandboxError):
    """No sandbox works on this machine, or none that can do what was asked. The message says how to get one."""

    exit_code = 4
