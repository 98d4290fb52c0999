"""Runs inside the pod of the page: runs a command, with a sign of life while it prints nothing.

It is sent as text to `python3 -c`, so it uses the standard library alone and imports nothing of
this project. Its arguments are the command and its words; its exit status is that of the command.
"""

import subprocess
import sys
import time

ALIVE_SECONDS = 5.0  # a reader that hears nothing for a minute takes the connection for dead
LIMIT_SECONDS = 900.0


def main(words: list[str]) -> int:
    """Run the command; it is ended after LIMIT_SECONDS."""
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
