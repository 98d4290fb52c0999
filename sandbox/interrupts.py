"""Lets the programs that this one starts hear SIGINT."""

import signal
import threading


def hear_interrupts() -> None:
    """Undo that SIGINT is ignored, which programs hand on to those that they start.

    A shell starts with SIGINT ignored what it runs in the background, such as a test run. Pulumi's
    engine ends the program that runs Python by SIGINT, and waits 5 s for one that does not hear it:
    each `pulumi preview` and `pulumi up` took so much longer in the background.
    """
    is_main = threading.current_thread() is threading.main_thread()  # no other may change it
    if is_main and signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
        signal.signal(signal.SIGINT, signal.default_int_handler)
