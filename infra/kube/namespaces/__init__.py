"""Finds out to whom a namespace belongs, what others have in it, and whether it may be deleted."""
