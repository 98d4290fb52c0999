"""Turns a path that a user wrote into the path of a file on this machine."""

from pathlib import Path


def local_path(text: str) -> Path:
    """Return the absolute path, without symbolic links and with the home folder for `~`."""
    return from_home(text).resolve()


def from_home(text: str) -> Path:
    """Return the path, with the users' home folders for `~` and `~name`.

    If no such user exists, the text is not changed, as in a shell, and no file will be found. None
    will be found either if there is a zero byte in the text, which no path can have.
    """
    text = text.replace("\0", r"\0")
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)


def why_unreadable(error: OSError | UnicodeDecodeError) -> str:
    """Return why a text file cannot be read, without the number of the error and the path."""
    if isinstance(error, UnicodeDecodeError):
        return "it is not a text in UTF-8"
    return error.strerror or str(error)
