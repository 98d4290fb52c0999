"""Runs: starting them, waiting for them, stopping them, and knowing how they ended."""
