"""Finds the memories that may answer a question: numpy arrays of one space."""
