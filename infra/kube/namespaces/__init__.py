"""Namespaces: whose they are, what others have in them, and when they may be deleted."""
