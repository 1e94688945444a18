"""Settings, read once; the only room that reads the environment."""

from __future__ import annotations

from typing import TYPE_CHECKING

from satchel.lazy import on_demand

if TYPE_CHECKING:
    from satchel.config.grants import Grant as Grant
    from satchel.config.grants import grants_of as grants_of
    from satchel.config.home import ensure_home as ensure_home
    from satchel.config.loading import load as load
    from satchel.config.loading import own_rules as own_rules
    from satchel.config.loading import prepare_libraries as prepare_libraries
    from satchel.config.loading import process_environ as process_environ
    from satchel.config.masking import mask_address as mask_address
    from satchel.config.masking import mask_arguments as mask_arguments
    from satchel.config.masking import mask_text as mask_text
    from satchel.config.masking import masked_command as masked_command
    from satchel.config.mcp_files import ImportedServers as ImportedServers
    from satchel.config.mcp_files import add_mcp_servers as add_mcp_servers
    from satchel.config.mcp_files import change_mcp_server as change_mcp_server
    from satchel.config.mcp_files import new_mcp_server as new_mcp_server
    from satchel.config.mcp_files import plain_values as plain_values
    from satchel.config.mcp_files import read_mcp_file as read_mcp_file
    from satchel.config.mcp_files import remove_mcp_server as remove_mcp_server
    from satchel.config.rule_texts import RuleOptions as RuleOptions
    from satchel.config.rule_texts import host_problem as host_problem
    from satchel.config.rule_texts import rule_options as rule_options
    from satchel.config.rule_texts import rule_text as rule_text
    from satchel.config.settings import SETTINGS as SETTINGS
    from satchel.config.settings import AgentSettings as AgentSettings
    from satchel.config.settings import BackgroundSettings as BackgroundSettings
    from satchel.config.settings import BudgetSettings as BudgetSettings
    from satchel.config.settings import BuilderSettings as BuilderSettings
    from satchel.config.settings import McpServerSettings as McpServerSettings
    from satchel.config.settings import McpTransport as McpTransport
    from satchel.config.settings import MemorySettings as MemorySettings
    from satchel.config.settings import Mode as Mode
    from satchel.config.settings import PermissionRule as PermissionRule
    from satchel.config.settings import ProviderKind as ProviderKind
    from satchel.config.settings import ProviderSettings as ProviderSettings
    from satchel.config.settings import RuleAction as RuleAction
    from satchel.config.settings import SandboxSettings as SandboxSettings
    from satchel.config.settings import ServerSettings as ServerSettings
    from satchel.config.settings import Setting as Setting
    from satchel.config.settings import Settings as Settings
    from satchel.config.settings import ToolsSettings as ToolsSettings
    from satchel.config.settings import ToolUse as ToolUse
    from satchel.config.show import ShownSetting as ShownSetting
    from satchel.config.show import show_settings as show_settings
    from satchel.config.trusted import SKILL_FOLDERS as SKILL_FOLDERS
    from satchel.config.trusted import ProjectContent as ProjectContent
    from satchel.config.trusted import TrustRecord as TrustRecord
    from satchel.config.trusted import project_files as project_files
    from satchel.config.trusted import read_project as read_project
    from satchel.config.trusted import trust as trust
    from satchel.config.trusted import trust_record as trust_record
    from satchel.config.trusted import untrust as untrust
    from satchel.config.write import add_permission as add_permission
    from satchel.config.write import remove_permission as remove_permission
    from satchel.config.write import set_value as set_value
    from satchel.config.write import set_values as set_values
    from satchel.config.write import write_initial as write_initial

# A hook of another agent reads a few settings, and has no time for the rest.
__getattr__ = on_demand(__name__)
