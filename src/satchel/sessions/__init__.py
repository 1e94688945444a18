"""Sessions: one append-only log of events for each, with an index for lists and search, and an inbox."""

from __future__ import annotations

from satchel.sessions.client_history import ClientHistory, ClientPlace
from satchel.sessions.ephemeral import EphemeralJournal
from satchel.sessions.export import hit_to_json, info_to_json, to_json, to_markdown
from satchel.sessions.index import SearchHit
from satchel.sessions.journal import Journal
from satchel.sessions.log import Log, Skipped
from satchel.sessions.logs import LogFile
from satchel.sessions.redaction import Redacted, Redaction, Words, live_redactor
from satchel.sessions.row_requests import PassedOn
from satchel.sessions.store import SessionStore
from satchel.sessions.summary import SessionInfo, UsageRow, read_title, source_of, title_of
from satchel.spacing import FORGOTTEN

__all__ = [
    "FORGOTTEN",
    "ClientHistory",
    "ClientPlace",
    "EphemeralJournal",
    "Journal",
    "Log",
    "LogFile",
    "PassedOn",
    "Redacted",
    "Redaction",
    "SearchHit",
    "SessionInfo",
    "SessionStore",
    "Skipped",
    "UsageRow",
    "Words",
    "hit_to_json",
    "live_redactor",
    "info_to_json",
    "read_title",
    "source_of",
    "title_of",
    "to_json",
    "to_markdown",
]
