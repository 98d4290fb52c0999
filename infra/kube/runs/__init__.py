"""Starts runs, waits for them, stops them, and finds out how they ended."""
