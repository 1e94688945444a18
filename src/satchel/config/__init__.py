"""Settings, read once; the only room that reads the environment."""

from satchel.config.home import ensure_home, is_trusted, project_files, trust, trusted_folders, untrust
from satchel.config.load import load, prepare_libraries, process_environ
from satchel.config.mcp_files import ImportedServers, add_mcp_servers, read_mcp_file
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
from satchel.config.show import ShownSetting, mask_address, show_settings
from satchel.config.write import add_permission, set_value, write_initial

__all__ = [
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
    "Setting",
    "Settings",
    "ShownSetting",
    "ToolUse",
    "ToolsSettings",
    "add_mcp_servers",
    "add_permission",
    "ensure_home",
    "is_trusted",
    "load",
    "mask_address",
    "prepare_libraries",
    "process_environ",
    "project_files",
    "read_mcp_file",
    "set_value",
    "show_settings",
    "trust",
    "trusted_folders",
    "untrust",
    "write_initial",
]
