"""Machines of the service E2B as a sandbox."""
