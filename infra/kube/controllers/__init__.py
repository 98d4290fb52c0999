"""Checks whether a platform can install its controllers, waits for them, and removes them."""
