"""The pinned programs of the sandbox and of the tests: one table for each use."""
