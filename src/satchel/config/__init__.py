"""Settings, read once; the only room that reads the environment."""

from satchel.config.grants import Grant, grants_of
from satchel.config.home import ensure_home
from satchel.config.load import load, prepare_libraries, process_environ
from satchel.config.masking import mask_address, mask_arguments, mask_text
from satchel.config.mcp_files import (
    ImportedServers,
    add_mcp_servers,
    new_mcp_server,
    plain_values,
    read_mcp_file,
    remove_mcp_server,
)
from satchel.config.rule_text import RuleOptions, host_problem, rule_options, rule_text
from satchel.config.settings import (
    SETTINGS,
    AgentSettings,
    BudgetSettings,
    McpServerSettings,
    McpTransport,
    MemorySettings,
    Mode,
    ProviderKind,
    ProviderSettings,
    Rule,
    RuleAction,
    Setting,
    Settings,
    ToolsSettings,
    ToolUse,
)
from satchel.config.show import ShownSetting, show_settings
from satchel.config.trust import (
    ProjectContent,
    TrustRecord,
    project_files,
    read_project,
    trust,
    trust_record,
    trusted_folders,
    untrust,
)
from satchel.config.write import add_permission, set_value, write_initial

__all__ = [
    "Grant",
    "grants_of",
    "ProjectContent",
    "TrustRecord",
    "read_project",
    "trust_record",
    "SETTINGS",
    "AgentSettings",
    "BudgetSettings",
    "ImportedServers",
    "McpServerSettings",
    "McpTransport",
    "MemorySettings",
    "Mode",
    "ProviderKind",
    "ProviderSettings",
    "Rule",
    "RuleAction",
    "RuleOptions",
    "Setting",
    "Settings",
    "ShownSetting",
    "ToolUse",
    "ToolsSettings",
    "add_mcp_servers",
    "add_permission",
    "ensure_home",
    "host_problem",
    "load",
    "mask_address",
    "mask_arguments",
    "mask_text",
    "new_mcp_server",
    "plain_values",
    "prepare_libraries",
    "process_environ",
    "project_files",
    "read_mcp_file",
    "remove_mcp_server",
    "rule_options",
    "rule_text",
    "set_value",
    "show_settings",
    "trust",
    "trusted_folders",
    "untrust",
    "write_initial",
]
