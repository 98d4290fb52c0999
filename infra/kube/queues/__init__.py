"""The queues of Kueue and Volcano: their objects, and what a run in a queue waits for."""
