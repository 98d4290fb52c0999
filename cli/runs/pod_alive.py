"""Signs of life: without them a slow command would seem to have lost its connection.

This is a part of the program that pod_program.py describes.
"""

import sys
import time

ALIVE_SECONDS = 5.0  # a reader that gets no byte for a minute takes the connection for dead


def alive(told: float) -> float:
    """Print a dot if the last one is old enough, so that the connection does not seem dead.

    `told` is when the last dot was printed. Returns when the last dot is printed now.
    """
    if time.monotonic() - told < ALIVE_SECONDS:
        return told
    print(".", end="", file=sys.stderr, flush=True)
    return time.monotonic()
