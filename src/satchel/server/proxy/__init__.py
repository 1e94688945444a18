"""The memory proxy: passes other agents' requests on to their provider, adds memory, and captures the conversation."""
