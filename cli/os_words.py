"""What the operating system refuses, in its own words for people. Pure."""


def os_words(error: OSError, known: str = "") -> str:
    """`No space left on device (/home/me/runs/dev/run.yaml)`.

    Args:
        error: what was raised.
        known: the file that the message names already.
    """
    file = "" if error.filename in (None, known) else f" ({error.filename})"
    return f"{error.strerror}{file}" if error.strerror else str(error)
