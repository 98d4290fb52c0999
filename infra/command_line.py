"""Functions that are shared by the programs which Pulumi's commands run.

This module uses only the standard library.
"""

import os
import re
import textwrap
from collections.abc import Callable
from pathlib import Path

Say = Callable[[str], None]
"""A function that prints a line for the user."""
LINE_LIMIT = 200  # characters; Pulumi's command provider stops reading at a very long line


# In ssh://user@host, a user name without a password is not replaced: it is no secret, and it tells
# people which host is meant.
_USER_AND_PASSWORD = re.compile(r"(?<=://)(?<!\bssh://(?=[^\s/'\"<>:@]*@))[^\s/'\"<>]*@")

CONTROL_SEQUENCE = (
    r"\033\[[0-?]*[ -/]*[@-~]"
    r"|\033\][^\007\033]*(?:\007|\033\\)"
    r"|[\x00-\x08\x0a-\x1f\x7f-\x9f]"
)
"""A regular expression for what steers a terminal (ECMA-48): sequences for colours, the cursor, the
screen and the window's title, and single control characters except for the tab."""
_CONTROL_SEQUENCE = re.compile(CONTROL_SEQUENCE)


def without_control(line: str) -> str:
    """The line without what steers a terminal, such as what a pod has written to its log."""
    return line if line.isprintable() else _CONTROL_SEQUENCE.sub("", line)


def short_lines(text: str) -> list[str]:
    """The lines of a text without passwords. Lines too long for the provider are wrapped."""
    lines = without_passwords(text).splitlines()
    return ["\n".join(textwrap.wrap(line, LINE_LIMIT)) for line in lines]


def without_passwords(text: str) -> str:
    """The text without the user and password of any address in it.

    If curl, pip, uv or urllib3 cannot parse a proxy's address, their message repeats it with its
    password. What disttrain's programs print is stored in Pulumi's log and in the stack's state.
    """
    return _USER_AND_PASSWORD.sub("[secret]@", text)


def cache_folder() -> Path:
    """The cache folder: `$DISTTRAIN_CACHE` if it is set, otherwise `~/.cache/disttrain`."""
    return Path(os.environ.get("DISTTRAIN_CACHE") or Path.home() / ".cache" / "disttrain")
