"""Documents: their text, read in the sandbox."""
