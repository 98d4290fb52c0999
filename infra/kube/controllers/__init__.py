"""The controllers that a platform installs: whether that can be, and taking them away again."""
