"""Names the environment variable that tells a program on this machine how to reach the node."""

VARIABLE = "DISTTRAIN_NODE"  # Its value holds a key and a password, so it is no argument.
