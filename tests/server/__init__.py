"""The HTTP server, through a real connection on loopback."""
