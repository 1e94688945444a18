"""External tools: executables that print their schema, read JSON and print JSON."""

from satchel.tools.external.discovery import Entry, Status
from satchel.tools.external.envelope import ErrorCode, failure, success, to_text
from satchel.tools.external.folders import FolderKind, ToolFolder
from satchel.tools.external.schema import ExternalDefinition, parse_schema
from satchel.tools.external.templates import LANGUAGES, new_tool
from satchel.tools.external.tool import ExternalTool
from satchel.tools.external.toolset import ApprovalRecord, ExternalTools, ScanState

__all__ = [
    "LANGUAGES",
    "ApprovalRecord",
    "ExternalDefinition",
    "Entry",
    "ErrorCode",
    "ExternalTool",
    "ExternalTools",
    "FolderKind",
    "ScanState",
    "Status",
    "ToolFolder",
    "failure",
    "new_tool",
    "parse_schema",
    "success",
    "to_text",
]
