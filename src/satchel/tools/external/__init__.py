"""External tools: executables that print their schema, read JSON and print JSON."""

from satchel.tools.external.discovery import Entry as Entry
from satchel.tools.external.envelope import failure as failure
from satchel.tools.external.envelope import success as success
from satchel.tools.external.folders import FolderKind as FolderKind
from satchel.tools.external.folders import ToolFolder as ToolFolder
from satchel.tools.external.schema import ExternalDefinition as ExternalDefinition
from satchel.tools.external.schema import parse_schema as parse_schema
from satchel.tools.external.templates import LANGUAGES as LANGUAGES
from satchel.tools.external.templates import new_tool as new_tool
from satchel.tools.external.tool import ExternalTool as ExternalTool
from satchel.tools.external.toolset import ApprovalRecord as ApprovalRecord
from satchel.tools.external.toolset import ExternalTools as ExternalTools
