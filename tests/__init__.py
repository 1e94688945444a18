"""Tests, one folder a room; `requirements.py` holds what they prove."""
