"""Settings, read once; the only room that reads the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.config.grants import Grant, grants_of
    from satchel.config.home import ensure_home
    from satchel.config.loading import load, own_rules, prepare_libraries, process_environ
    from satchel.config.masking import mask_address, mask_arguments, mask_text, masked_command
    from satchel.config.mcp_files import (
        ImportedServers,
        add_mcp_servers,
        new_mcp_server,
        plain_values,
        read_mcp_file,
        remove_mcp_server,
    )
    from satchel.config.rule_texts import RuleOptions, host_problem, rule_options, rule_text
    from satchel.config.settings import (
        SETTINGS,
        AgentSettings,
        BackgroundSettings,
        BudgetSettings,
        BuilderSettings,
        McpServerSettings,
        McpTransport,
        MemorySettings,
        Mode,
        PermissionRule,
        ProviderKind,
        ProviderSettings,
        RuleAction,
        SandboxSettings,
        ServerSettings,
        Setting,
        Settings,
        ToolsSettings,
        ToolUse,
    )
    from satchel.config.show import ShownSetting, show_settings
    from satchel.config.trusted import (
        SKILL_FOLDERS,
        ProjectContent,
        TrustRecord,
        project_files,
        read_project,
        trust,
        trust_record,
        trusted_folders,
        untrust,
    )
    from satchel.config.write import add_permission, remove_permission, set_value, write_initial

__all__ = [
    "SKILL_FOLDERS",
    "Grant",
    "grants_of",
    "ProjectContent",
    "TrustRecord",
    "read_project",
    "trust_record",
    "SETTINGS",
    "AgentSettings",
    "BackgroundSettings",
    "BudgetSettings",
    "BuilderSettings",
    "ImportedServers",
    "McpServerSettings",
    "McpTransport",
    "MemorySettings",
    "Mode",
    "ProviderKind",
    "ProviderSettings",
    "PermissionRule",
    "RuleAction",
    "RuleOptions",
    "SandboxSettings",
    "ServerSettings",
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
    "masked_command",
    "mask_text",
    "new_mcp_server",
    "plain_values",
    "prepare_libraries",
    "own_rules",
    "process_environ",
    "project_files",
    "read_mcp_file",
    "remove_mcp_server",
    "remove_permission",
    "rule_options",
    "rule_text",
    "set_value",
    "show_settings",
    "trust",
    "trusted_folders",
    "untrust",
    "write_initial",
]

# A hook of another agent reads a few settings, and has no time for the rest.
__getattr__ = on_demand(
    __name__,
    {
        "grants": ("Grant", "grants_of"),
        "home": ("ensure_home",),
        "loading": ("load", "own_rules", "prepare_libraries", "process_environ"),
        "masking": ("mask_address", "mask_arguments", "mask_text", "masked_command"),
        "mcp_files": (
            "ImportedServers",
            "add_mcp_servers",
            "new_mcp_server",
            "plain_values",
            "read_mcp_file",
            "remove_mcp_server",
        ),
        "rule_texts": ("RuleOptions", "host_problem", "rule_options", "rule_text"),
        "settings": (
            "SETTINGS",
            "AgentSettings",
            "BackgroundSettings",
            "BudgetSettings",
            "BuilderSettings",
            "McpServerSettings",
            "McpTransport",
            "MemorySettings",
            "Mode",
            "ProviderKind",
            "ProviderSettings",
            "PermissionRule",
            "RuleAction",
            "SandboxSettings",
            "ServerSettings",
            "Setting",
            "Settings",
            "ToolsSettings",
            "ToolUse",
        ),
        "show": ("ShownSetting", "show_settings"),
        "trusted": (
            "SKILL_FOLDERS",
            "ProjectContent",
            "TrustRecord",
            "project_files",
            "read_project",
            "trust",
            "trust_record",
            "trusted_folders",
            "untrust",
        ),
        "write": ("add_permission", "remove_permission", "set_value", "write_initial"),
    },
)
