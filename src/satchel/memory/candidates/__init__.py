"""Finds the memories that may answer a question: numpy arrays behind the port `Candidates`."""
