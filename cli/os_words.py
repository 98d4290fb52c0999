"""Turns an error of the operating system into a short text for people. This module is pure."""


def os_words(error: OSError, known: str = "") -> str:
    """Return a text such as `No space left on device (/home/me/runs/dev/run.yaml)`.

    Args:
        error: the error that was raised.
        known: the file that the message around this text already names; it is left out here.
    """
    file = "" if error.filename in (None, known) else f" ({error.filename})"
    return f"{error.strerror}{file}" if error.strerror else str(error)
