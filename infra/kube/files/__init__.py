"""Sends files to the claim, through a pod that lives as long as the command."""
