"""Pictures that are made smaller, in the sandbox."""
