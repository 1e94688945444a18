"""Wires the rooms together; the only room that knows them all."""
