"""The web pages: server-rendered HTML over the same runtime as the API."""
