"""Everything that a model can call: port, registry, permissions, built-ins."""
