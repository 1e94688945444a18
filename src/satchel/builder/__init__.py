"""A sub-agent that writes, tests and registers capabilities, and the durable queue in which its builds wait."""
