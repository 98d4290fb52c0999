"""Sends requests to the API server, and runs commands in pods through it."""
