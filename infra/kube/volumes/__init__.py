"""Checks which volumes and claims a cluster can provide, and keeps those with data."""
