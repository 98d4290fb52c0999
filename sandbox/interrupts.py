"""Lets the programs that this one starts receive SIGINT."""

import signal
import threading


def hear_interrupts() -> None:
    """Stop ignoring SIGINT, because the programs that this process starts would ignore it too.

    A shell lets a program that it starts in the background, such as a test run, ignore SIGINT.
    Pulumi's engine ends the program that runs Python by SIGINT, and waits 5 s for one that ignores
    it. So each `pulumi preview` and `pulumi up` took 5 s longer in the background.
    """
    is_main = threading.current_thread() is threading.main_thread()  # only it may set a handler
    if is_main and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
