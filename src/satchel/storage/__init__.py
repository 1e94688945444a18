"""Databases: engine, transactions and migrations; knows no table."""
