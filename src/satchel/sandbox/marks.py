"""Environment variables by which started processes are recognised."""

from __future__ import annotations

MARK = "_SATCHEL_RUN"
"""The environment variable that marks a started process and its descendants. It doesn't begin with `SATCHEL_`, the
prefix of settings."""
REPORT_FD = "_SATCHEL_REPORT_FD"
"""The environment variable that names the descriptor of the report, if one was requested."""
