"""Runs inside the page's pod: runs a command, and prints dots to standard error meanwhile.

It is sent as text to `python3 -c`, so it uses only the standard library and imports nothing of
this project. Its arguments are the command with its arguments. Its exit status is the command's.
"""

import subprocess
import sys
import time

ALIVE_SECONDS = 5.0  # a reader that gets no byte for a minute takes the connection for dead
LIMIT_SECONDS = 900.0


def main(words: list[str]) -> int:
    """Run the command, but at most for LIMIT_SECONDS, and return its exit status."""
    end = time.monotonic() + LIMIT_SECONDS
    with subprocess.Popen(words) as process:
        while time.monotonic() < end:
            try:
                return process.wait(ALIVE_SECONDS)
            except subprocess.TimeoutExpired:
                print(".", end="", file=sys.stderr, flush=True)
        process.kill()
    print(f"it took longer than {LIMIT_SECONDS:.0f} s", file=sys.stderr)
    return 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
