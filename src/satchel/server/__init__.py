"""The HTTP server: a face of the same sessions, memories and capabilities as the terminal."""
