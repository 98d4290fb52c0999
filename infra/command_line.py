"""What the programs that Pulumi's commands run have in common. Standard library only."""

import os
import re
import textwrap
from pathlib import Path

LINE_LIMIT = 200  # Pulumi's command provider stops reading at very long lines


# A user of SSH without a password is no secret, and tells people which host is meant.
_USER_AND_PASSWORD = re.compile(r"(?<=://)(?<!\bssh://(?=[^\s/'\"<>:@]*@))[^\s/'\"<>]*@")


def short_lines(text: str) -> list[str]:
    """The lines of a text without passwords, each broken where the provider would not take it."""
    lines = without_passwords(text).splitlines()
    return ["\n".join(textwrap.wrap(line, LINE_LIMIT)) for line in lines]


def without_passwords(text: str) -> str:
    """The text without the user and password of any address in it.

    curl, pip, uv and urllib3 repeat a proxy's address, with its password, when they cannot read it;
    and what our programs print stands in Pulumi's log and in the state.
    """
    return _USER_AND_PASSWORD.sub("[secret]@", text)


def cache_folder() -> Path:
    """`$DISTTRAIN_CACHE`, else `~/.cache/disttrain`."""
    return Path(os.environ.get("DISTTRAIN_CACHE") or Path.home() / ".cache" / "disttrain")
