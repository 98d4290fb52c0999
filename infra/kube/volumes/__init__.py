"""Volumes and claims: what a cluster can give, and what has to stay."""
