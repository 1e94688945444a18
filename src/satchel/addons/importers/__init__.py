"""Importers: formats of other programs' memories and conversations."""
