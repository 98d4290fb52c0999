"""Asks the API server, and runs commands in pods through it."""
