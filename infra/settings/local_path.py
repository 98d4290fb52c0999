"""Turns a path that a user wrote into the path of a file on this machine."""

from pathlib import Path


def local_path(text: str) -> Path:
    """Return the absolute path, without symbolic links and with the home folder for `~`."""
    return from_home(text).resolve()


def from_home(text: str) -> Path:
    """Return the path, with the users' home folders for `~` and `~name`.

    If no such user exists, the text is not changed, as in a shell, and no file will be found.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
