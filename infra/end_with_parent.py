"""Ends a program when the process has gone that has started it: standard library only.

At Ctrl-C Pulumi's command plugin kills the shell of a command, and nothing else, and the engine
waits until what the shell has started has closed its output. A program that waits for a training
would go on for a quarter of an hour, and hold `pulumi up` for so long.
"""

import os
import signal
import threading
import time

EVERY_SECONDS = 0.5


def end_with_parent() -> None:
    """From now on, send this program a SIGTERM once its parent has ended."""
    parent = os.getppid()

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(EVERY_SECONDS)
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=watch, daemon=True, name="end-with-parent").start()
