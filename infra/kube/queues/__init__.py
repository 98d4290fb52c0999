"""Queues of Kueue and Volcano: their objects, and what a run in one waits for."""
