"""Pods: what they say about themselves, where there is room for them, and their end."""
