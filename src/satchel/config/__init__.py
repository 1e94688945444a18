"""Settings, read once; the only room that reads the environment."""
