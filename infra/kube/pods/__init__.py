"""Describes the state of pods, finds nodes with room for them, and waits for their end."""
