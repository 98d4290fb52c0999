"""Ends a program when its parent process has ended. This module uses only the standard library.

At Ctrl-C, Pulumi's command plugin kills only the shell of a command. The engine then waits until
the programs that the shell has started have closed their output. Without this module, a program
that waits for a training would continue for a quarter of an hour, and `pulumi up` with it.
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
