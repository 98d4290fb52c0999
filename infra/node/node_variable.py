"""The environment variable that tells a program of this machine how to reach the node."""

VARIABLE = "DISTTRAIN_NODE"  # it holds a key and a password, so it is no argument
