"""Paths of files on this machine, as users write them."""

from pathlib import Path


def local_path(text: str) -> Path:
    """The whole path."""
    return from_home(text).resolve()


def from_home(text: str) -> Path:
    """The path, in which `~` and `~name` are the homes of users.

    Where there is no such user, the text stays as it is, as in a shell, and no file is found.
    """
    try:
        return Path(text).expanduser()
    except RuntimeError:
        return Path(text)
