"""Ask the model, run its tools, repeat."""
